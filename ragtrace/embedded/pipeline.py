"""The pipeline of the demo and of the papers: what a user would write, as one finds it in any tutorial.

Nothing in it knows of ragtrace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.types import Document

TOP_K = 5


def rag(
    documents: Sequence[Document], model: Any, embeddings: Any, system: str, top_k: int = TOP_K
) -> Callable[[str], str]:
    """FAISS over ``embeddings``, top-k, a prompt with the retrieved texts, a chat model; query → answer."""
    from langchain_community.vectorstores import FAISS
    from langchain_core.documents import Document as LangChainDocument
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough

    store = FAISS.from_documents([LangChainDocument(page_content=d.content, id=d.id) for d in documents], embeddings)
    prompt = ChatPromptTemplate.from_messages([("system", system), ("user", "Context:\n{context}\n\n{question}")])

    def join(found: list[LangChainDocument]) -> str:
        return "\n\n".join(document.page_content for document in found)

    retriever = store.as_retriever(search_kwargs={"k": top_k})
    chain = {"context": retriever | join, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()
    return lambda query: str(chain.invoke(query))
