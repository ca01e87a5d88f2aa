"""A SAM template -> the CloudFormation that AWS makes of it, as JSON on standard output.

Run in the environment of requirements/tools.txt, since the translator pins another pydantic; AWS_DEFAULT_REGION names
the region.
"""

import json
import sys
from pathlib import Path
from typing import Any

from samcli.yamlhelper import yaml_parse
from samtranslator.translator.transform import transform


class _NoManagedPolicies:
    """The template names none; one that came would have to be looked up in an account."""

    def load(self) -> dict[str, str]:
        return {}


def main(path: str) -> None:
    """Transform one template; code is taken to be uploaded already."""
    template: dict[str, Any] = yaml_parse(Path(path).read_text())
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = {"Bucket": "bucket", "Key": resource["Properties"]["CodeUri"]}
    json.dump(transform(template, {}, _NoManagedPolicies()), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
