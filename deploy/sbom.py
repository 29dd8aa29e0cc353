"""Prints a CycloneDX 1.5 list of all crates that are linked into programs: `deploy/sbom.py RUST-TARGET NAME PROGRAM..`

The crates are those of `cargo tree` for the target, without build scripts and procedural macros; their licenses and the graph are
those of `cargo metadata`, their digests those of Cargo.lock. A static program also contains Rust's library and the C library.
The same sources, compiler and SOURCE_DATE_EPOCH give the same bytes.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked(target, programs):
    """Names and versions of the crates in the programs."""
    packages = [word for program in programs for word in ("--package", program)]
    lines = run("cargo", "tree", "--locked", "--target", target, "--edges", "normal,no-proc-macro", "--prefix", "none",
                "--format", "{p}", *packages)
    return {tuple(line.split()[:2]) for line in lines.splitlines() if line.strip()}


def expression(license):
    """An SPDX expression: older crates write `/` for `OR`."""
    return re.sub(r"\s*/\s*|\s+OR\s+", " OR ", license) if license else None


def component(package, reference, digest):
    found = {"type": "library", "bom-ref": reference, "name": package["name"], "version": package["version"]}
    if package["description"]:
        found["description"] = " ".join(package["description"].split())
    if digest:
        found["hashes"] = [{"alg": "SHA-256", "content": digest}]
    if license := expression(package["license"]):
        found["licenses"] = [{"expression": license}]
    found["purl"] = reference
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def libraries(name):
    """What no crate is: the library of Rust, and the C library of a static program."""
    release = re.search(r"^release: (.*)$", run("rustc", "-vV"), re.M)[1]
    yield {"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": release,
           "licenses": [{"expression": "MIT OR Apache-2.0"}]}
    if name.endswith("-static"):
        glibc = run("ldd", "--version").splitlines()[0].split()[-1]
        yield {"type": "library", "bom-ref": "glibc", "name": "glibc", "version": glibc,
               "licenses": [{"expression": "LGPL-2.1-or-later"}]}
    elif name.endswith("-musl"):
        yield {"type": "library", "bom-ref": "musl", "name": "musl", "licenses": [{"expression": "MIT"}]}


def bill(target, name, programs):
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    digests = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    inside = linked(target, programs)
    packages = {}
    for package in metadata["packages"]:
        if (package["name"], "v" + package["version"]) in inside:
            reference = f"pkg:cargo/{package['name']}@{package['version']}"
            packages[package["id"]] = package, reference
    if len(packages) != len(inside):
        sys.exit(f"deploy/sbom.py: cargo tree has {len(inside)} crates, cargo metadata {len(packages)} of them")
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    components, dependencies = list(libraries(name)), []
    for package, reference in packages.values():
        components.append(component(package, reference, digests[package["name"], package["version"]]))
    for node in metadata["resolve"]["nodes"]:
        if node["id"] in packages:
            below = {packages[id][1] for id in node["dependencies"] if id in packages}
            dependencies.append({"ref": packages[node["id"]][1], "dependsOn": sorted(below)})
    components.sort(key=lambda one: one["bom-ref"])
    dependencies.sort(key=lambda one: one["ref"])
    roots = [f"pkg:cargo/{program}@{version}" for program in programs]
    dependencies.insert(0, {"ref": "fl", "dependsOn": sorted(roots)})
    moment = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    body = {
        "metadata": {
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "bom-ref": "fl", "name": f"fl-{name}", "version": version,
                          "licenses": [{"expression": "Apache-2.0"}]},
        },
        "components": components,
        "dependencies": dependencies,
    }
    number = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(body, sort_keys=True))
    head = {"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.5",
            "serialNumber": number.urn, "version": 1}
    return {**head, **body}


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    print(json.dumps(bill(sys.argv[1], sys.argv[2], sys.argv[3:]), indent=1))
