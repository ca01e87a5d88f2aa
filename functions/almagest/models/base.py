"""What every wire model shares."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, model_validator

from almagest.ingestion.text import clean

MAX_DEPTH = 64


class Request(BaseModel):
    """A request body: unknown fields are an error that names them, and every string arrives clean.

    Attributes
    ----------
    cleaned
        Whether characters that cannot be stored were taken out of any string, or replaced by their composed form.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    _cleaned: bool = PrivateAttr(default=False)

    @property
    def cleaned(self) -> bool:
        """Whether cleaning changed more than line ends."""
        return self._cleaned

    @model_validator(mode="wrap")
    @classmethod
    def _clean(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        data, changed = clean_deeply(data)
        model = validate(data)
        model._cleaned = model._cleaned or changed
        return model


class Empty(Request):
    """A body without fields, for what the path says in full."""


class Result(BaseModel):
    """An answer: fields are only ever added within a version, so unknown ones are let through."""

    model_config = ConfigDict(extra="ignore")


def clean_deeply(value: Any, depth: int = 0) -> tuple[Any, bool]:
    """Clean every string inside a JSON value, keys included.

    Returns
    -------
    tuple
        The value, and whether cleaning changed more than line ends.

    Raises
    ------
    ValueError
        When the value is nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        pairs = [clean_deeply(element, depth + 1) for element in value]
        return [element for element, _ in pairs], any(changed for _, changed in pairs)
    if isinstance(value, dict):
        entries = [(clean_deeply(key, depth + 1), clean_deeply(element, depth + 1)) for key, element in value.items()]
        return {key: element for (key, _), (element, _) in entries}, any(a or b for (_, a), (_, b) in entries)
    return value, False
