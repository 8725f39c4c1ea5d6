"""A kernel of the Hub from a local folder does what jat_graph does: ``python load.py FOLDER``."""

import sys
from pathlib import Path

import torch
from kernels import get_local_kernel
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

import jat_graph

kernel = get_local_kernel(Path(sys.argv[1]))
torch.manual_seed(0)
query, keys = torch.randn(2, 4, 1200, 32), torch.randn(2, 2, 2, 1200, 32)
padding = torch.zeros(2, 1200, dtype=torch.bool)
padding[0, :100] = True
options = {"dense_below": 0, "keys": 64}
for given in ({"is_causal": True}, {"padding": padding}):
    found = kernel.clustered_attention(query, *keys, **given, **options)
    mask = {"attention_mask": ~padding} if "padding" in given else given
    wanted = jat_graph.clustered_attention(query, *keys, enable_gqa=True, **mask, **options)
    read = slice(100, None) if "padding" in given else slice(None)
    torch.testing.assert_close(found[:, :, read], wanted[:, :, read], rtol=1e-4, atol=1e-5)

AttentionInterface.register("kernel", kernel.clustered)
AttentionMaskInterface.register("kernel", ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
shape = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 50}
config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2)
model = LlamaForCausalLM(config).eval()
tokens = torch.randint(0, 50, (2, 80))
said = []
for name in ("sdpa", "kernel"):  # short prompts are read alike
    model.set_attn_implementation(name)
    own = {"attention_mask": (~padding[:, 90:170]).long(), "max_new_tokens": 6, "do_sample": False}
    said.append(model.generate(tokens, **own))
assert torch.equal(*said), said
