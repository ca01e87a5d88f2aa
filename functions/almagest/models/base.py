"""What every wire model shares."""

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """A request body: unknown fields are an error that names them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Result(BaseModel):
    """An answer: fields are only ever added within a version, so unknown ones are let through."""

    model_config = ConfigDict(extra="ignore")
