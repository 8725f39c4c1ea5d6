"""Long document: a pretrained encoder that reads thousands of tokens, far ones over stones.

The position table of the encoder is repeated until it is long enough. Every head reads a window
around each token and a few global ones; what is far away comes over stepping stones. How much of it
is learned, from none, and time and memory grow with the length and not with its square.

Sources:
    Beltagy et al., *Longformer: The Long-Document Transformer*, 2020, for the repeated positions,
    the window and the global tokens.
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, for jumps and the choice of keys; stones are this library's own.
    Reimers and Gurevych, *Sentence-BERT*, EMNLP 2019, for the mean over tokens, which is what
    sentence encoders such as MiniLM are trained with.
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

from jat_graph import JatConfig, attach
from jat_graph.hf import keep_graphs, resize_position_embeddings


class LongDocument(nn.Module):
    """Logits of the class of each document, from the mean of its tokens.

    Args:
        path: Folder or Hub name of a BERT-like encoder and its tokenizer.
        classes: Number of classes.
        config: Pattern and stones, as ``JatConfig.stones(pattern="window:256+global:1",
            key_selection="sampled")``; with ``strength=0.0`` it is the pattern alone.
        max_length: Tokens that it shall read.
        checkpointing: Whether the backward pass computes each layer again, which saves memory.
    """

    def __init__(
        self,
        path: str,
        classes: int,
        config: JatConfig,
        max_length: int = 4096,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        settings = AutoConfig.from_pretrained(path)
        settings.attention_probs_dropout_prob = 0.0  # on the CPU no fused kernel has dropout
        encoder = AutoModel.from_pretrained(path, config=settings, add_pooling_layer=False)
        tokenizer = AutoTokenizer.from_pretrained(path)  # whose marks are no stones
        self.encoder = attach(resize_position_embeddings(encoder, max_length), config, tokenizer)
        if checkpointing:
            how = {"use_reentrant": False, "context_fn": keep_graphs}
            self.encoder.activation_checkpointing_enable(how)
        self.classifier = nn.Linear(settings.hidden_size, classes)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits ``[B, classes]`` for tokens ``[B, L]``; the mask is 1 for real ones."""
        states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state  # [B, L, C]
        weight = mask / mask.sum(-1, keepdim=True)
        return self.classifier((states * weight.unsqueeze(-1)).sum(1))
