"""Ends with a message unless the file has the schema of CycloneDX and names what every program contains."""

import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = open(sys.argv[1]).read()
if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(text):
    sys.exit(f"{sys.argv[1]}: {error}")
bill = json.loads(text)
references = [component["bom-ref"] for component in bill["components"]]
named = {component["name"] for component in bill["components"]}
for name in ("rust-std", "glibc", "tokio", "rustls", "ring", "sled", "fl-client", "fl-server", "fl-compress"):
    assert name in named, f"{name} is missing"
assert len(set(references)) == len(references), "a part is there twice"
assert not {"proptest", "criterion", "serde_derive", "cc"} & named, "a part of no program"
unlicensed = [component["name"] for component in bill["components"] if not component.get("licenses")]
assert not unlicensed, f"without a license: {unlicensed}"
below = {name for one in bill["dependencies"] for name in [one["ref"], *one["dependsOn"]]}
assert below <= {*references, "fl"}, "the graph names a part that is not listed"
print(f"{len(references)} parts")
