"""The page of a repository that holds the models of many cells: the hub shows none but its root's.

The folders' own cards are linked there, as they lie in the repository.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

README = "README.md"


def push_index(api: Any, repository: str) -> None:
    """Write the root's README.md of all folders that have a card; again, where another push has
    brought one meanwhile. `api` is an HfApi; raises what it raises."""
    listed: list[str] | None = None
    while (found := folders(api.list_repo_files(repository))) != listed:
        api.upload_file(
            repo_id=repository,
            path_or_fileobj=index(found).encode(),
            path_in_repo=README,
            commit_message="feedrate: list of models",
        )
        listed = found


def folders(files: Iterable[str]) -> list[str]:
    """The folders that have a card, sorted; the root is none of them."""
    return sorted(file.removesuffix(f"/{README}") for file in files if file.endswith(f"/{README}"))


def index(found: Iterable[str]) -> str:
    """The page: metadata in YAML, then a line a folder."""
    head = ["---", "library_name: transformers", "tags:", "- feedrate", "---", "# Models", ""]
    about = "Trained with feedrate; a folder is a study, a device and a cell, with its own card."
    lines = [f"- [`{one}`]({quote(one, safe='/=~')}/{README})" for one in found]
    return "\n".join([*head, about, "", *lines]) + "\n"
