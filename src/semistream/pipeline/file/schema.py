"""The JSON Schema of pipeline files, by which editors complete keys and mark mistakes."""

import json
import re
from typing import Any

from pydantic import TypeAdapter

from semistream.pipeline.file.models import PipelineFile

__all__ = ["schema_text"]


def schema_text() -> str:
    """Return the JSON Schema as text; ``semistream check --schema`` prints it."""
    made = TypeAdapter(PipelineFile).json_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_plain(made)}
    return json.dumps(schema, indent=2, ensure_ascii=False)


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a schema without titles and empty defaults, and with YAML's words in its texts."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, str):
        return re.sub(r'``"?(.*?)"?``', r"`\1`", schema)  # `inner` instead of ``"inner"``
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
