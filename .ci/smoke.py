"""What an installed jat_graph must do, with nothing else installed: `python -I .ci/smoke.py`."""

import subprocess
import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModel, BertConfig, BertModel
from transformers.utils.logging import disable_progress_bar

import jat_graph
from jat_graph import JatConfig

warnings.simplefilter("error", UserWarning)
disable_progress_bar()
here = Path(jat_graph.__file__).resolve()
assert Path(sys.prefix).resolve() in here.parents, f"{here} is not that of this environment"
assert not any(map(find_spec, ("examples", "numba", "pandas", "tests")))

torch.manual_seed(0)
config = BertConfig(
    vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=37, max_position_embeddings=256,
    initializer_range=0.3,
)  # fmt: skip
tokens = torch.randint(5, 99, (2, 200))
heads = {
    "clusters": JatConfig.clustered(keys=8, size=2, segment=16, dense_below=0),
    "pairs": JatConfig.paper(heads=2, vote_rate=0.1),
    "stones": JatConfig.stones(strength=0.5),
}
for name, settings in heads.items():
    model = BertModel(config).eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        plain = model(tokens).last_hidden_state
        jat_graph.attach(model, settings)
        if name != "stones":  # the kinds that need compiled loops to be fast, and say so
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model(tokens)
            assert any("pip install 'jat_graph[numba]'" in str(one.message) for one in caught)
            warnings.filterwarnings("ignore", "numba is missing")  # from here on
        output = model(tokens).last_hidden_state
        assert output.isfinite().all() and not torch.allclose(output, plain), name
        jat_graph.save_pretrained(model, folder)
        loaded = jat_graph.from_pretrained(AutoModel, folder).eval()
        assert torch.equal(loaded(tokens).last_hidden_state, output), name
        assert torch.equal(jat_graph.detach(model)(tokens).last_hidden_state, plain), name

command = Path(sys.executable).parent / "jat-graph"
shown = subprocess.run([command, "--help"], check=True, capture_output=True, text=True).stdout
assert all(name in shown for name in ("demo", "inspect", "view", "probe"))
draw = [command, "plot", "--pattern", "window:6", "--output", "never.png"]
drawn = subprocess.run(draw, capture_output=True, text=True)
assert "matplotlib is missing: pip install 'jat_graph[viz]'" in drawn.stderr, drawn.stderr
