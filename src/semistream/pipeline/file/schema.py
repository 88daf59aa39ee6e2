"""The JSON Schema of pipeline files, by which editors complete keys and mark mistakes."""

import json
import re
from typing import Any

from pydantic import TypeAdapter

from semistream.options import EnrichOptions
from semistream.pipeline.file.models import PipelineFile

__all__ = ["schema_text"]


def schema_text() -> str:
    """Return the JSON Schema as text; ``semistream check --schema`` prints it."""
    made = TypeAdapter(PipelineFile).json_schema()
    # Pydantic reads a class's own docstrings only, not those of fields that it inherits.
    options = TypeAdapter(EnrichOptions).json_schema()["properties"]
    made["$defs"]["Enrichment"]["properties"] |= options
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_plain(made)}
    return json.dumps(schema, indent=2, ensure_ascii=False)


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema without titles and empty defaults, and with YAML's words in its texts."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, str):
        text = re.sub(r'``"?(.*?)"?``', r"`\1`", schema)  # `inner` instead of ``"inner"``
        return re.sub(r"\s+", " ", text)
    if not isinstance(schema, dict):
        return schema
    if "kind" in schema.get("properties", {}):  # it has a default, but says which section it is
        schema = schema | {"required": ["kind", *schema.get("required", ())]}
    return {
        name: _plain(each)
        for name, each in schema.items()
        if not (name == "title" and isinstance(each, str))
        and not (name == "default" and each in (None, "", [], {}))
    }
