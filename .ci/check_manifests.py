"""Reads every unit, image and manifest of deploy/ and compares them: `check_manifests.py BIN`, BIN a folder with the programs.

Every command of them exists, with its options; every path of a command is on a mount; names, ports, selectors, volumes, Secrets and
claims that one part names exist in another. Every object of Kubernetes is valid by the schemas of its API, with no field that they do
not know. `kubectl kustomize`, where it is installed, must make the same objects.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import kubernetes_validate
import yaml

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
BIN = Path(sys.argv[1]).resolve()
USER = 65532
# The versions of Kubernetes whose schemas the manifests must fit: the oldest of them that is promised, and the newest there is.
KUBERNETES = ["1.25", kubernetes_validate.latest_version()]
checked = 0


def check(good, what):
    global checked
    checked += 1
    if not good:
        sys.exit(f"deploy/: {what}")


@cache
def usage(program, command=""):
    """The options and the subcommands that a command's help lists."""
    words = [BIN / program, *command.split(), "--help"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    lines = [line.strip().split("  ")[0] for line in text.splitlines() if re.match(r" +-", line)]
    options = {name for line in lines for name in re.findall(r"--?[a-z][a-z-]*", line)}
    listed = text.partition("Commands:\n")[2].partition("\n\n")[0]
    return options, re.findall(r"^  ([a-z-]+)", listed, re.M)


def check_command(words, where):
    """`words`: a program and its arguments. Returns the paths among them."""
    program = Path(words[0]).name
    check(program in ("fl-client", "fl-server"), f"{where}: {program} is none of our programs")
    check(len(words) > 1 and words[1] in usage(program)[1], f"{where}: {program} has no command {words[1:2]}")
    options = usage(program, words[1])[0]
    for word in words[2:]:
        option = word.split("=")[0]
        check(not re.match(r"--?[a-z]", word) or option in options, f"{where}: {program} {words[1]} has no {option}")
    values = [word.partition("=")[2] if word.startswith("--") else word for word in words[2:]]
    return [value for value in values if value.startswith("/")]


def under(path, folders):
    return any(Path(path).is_relative_to(folder) for folder in folders)


def images():
    """The images by name: entry point, command, folders, port."""
    found = {}
    for file in sorted(DEPLOY.glob("Containerfile.*")):
        lines = [line.split(None, 1) for line in file.read_text().splitlines() if re.match(r"[A-Z]+ ", line)]
        last = dict(lines)
        entry, command = json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])
        probe = json.loads(last["HEALTHCHECK"].partition("CMD ")[2])
        check(last["USER"] == f"{USER}:{USER}", f"{file.name}: not the user {USER}")
        check(file.suffix == ".client-cuda" or last["FROM"] == "scratch", f"{file.name}: not from scratch")
        copied = [line.split()[-1] for verb, line in lines if verb == "COPY"]
        check(entry[0] in copied, f"{file.name}: {entry[0]} is not in the image")
        folders = [name for name in copied if name.endswith("/") and name != "/"]
        for path in check_command(entry + command, file.name) + check_command(probe, file.name):
            check(under(path, [*folders, "/state"]), f"{file.name}: nothing is mounted at {path}")
        name = "fl-" + file.suffix[1:]
        found[name] = {"entry": entry, "command": command, "folders": folders, "ports": last.get("EXPOSE", "").split(), "probe": probe}
    return found


def check_enrollment(words, images, where):
    """`enroll` writes the client.toml that the image runs."""
    folder = words[words.index("--to") + 1]
    check(images["fl-client"]["command"][1] == f"{folder}/client.toml", f"{where}: {folder} is not what the client reads")


def compose(images):
    file = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services = file["services"]
    for name, service in services.items():
        where = f"compose.yaml: {name}"
        image = images[service["image"].split(":")[0]]
        mounts = dict(reversed(volume.removesuffix(":ro").split(":")) for volume in service["volumes"])
        check(set(mounts.values()) <= set(file["volumes"]), f"{where}: a volume that is not declared")
        check(service["read_only"] is True and service["cap_drop"] == ["ALL"], f"{where}: may write outside of volumes")
        words = image["entry"] + service.get("command", image["command"])
        for path in check_command(words, where):
            check(under(path, mounts), f"{where}: nothing is mounted at {path}")
        for path in check_command(image["probe"], where):
            check("setup" in service.get("profiles", []) or under(path, mounts), f"{where}: the probe's {path} is not mounted")
        check(set(service.get("depends_on", [])) <= set(services), f"{where}: depends on an unknown service")
        for ports in service.get("ports", []):
            check(ports.split(":")[-1] in image["ports"], f"{where}: port {ports} is none of the image's {image['ports']}")
    check(len(services["server"]["ports"]) == len(images["fl-server"]["ports"]), "compose.yaml: a port of the server is closed")
    for name, client in services.items():
        if name.startswith("client-"):
            enroll = services[name.replace("client", "enroll")]
            check(enroll["volumes"] == client["volumes"], f"compose.yaml: {name} is enrolled into another volume")
            check_enrollment(enroll["command"], images, f"compose.yaml: {name}")
    check(f"0.0.0.0:{images['fl-server']['ports'][0]}" in services["authority"]["command"], "compose.yaml: listens elsewhere")


def matches(selector, labels):
    wanted = selector.get("matchLabels", {}) if "matchLabels" in selector or "matchExpressions" in selector else selector
    expressions = selector.get("matchExpressions", [])
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        labels.get(one["key"]) in one["values"] for one in expressions
    )


def valid(object, version):
    """Checks `object` by the schema of Kubernetes `version`; a field without a meaning is an error."""
    where = f"kubernetes: {object['kind']} {object['metadata']['name']}, Kubernetes {version}"
    try:
        kubernetes_validate.validate(object, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        check(False, f"{where}: {'.'.join(str(part) for part in error.absolute_path)}: {error.message}")
    except kubernetes_validate.SchemaNotFoundError as error:
        check(False, f"{where}: {error.message}")
    check(True, where)


def kubernetes(images, objects, secrets):
    for one in objects:
        for version in KUBERNETES:
            valid(one, version)
    of = lambda kind: [one for one in objects if one["kind"] == kind]
    workloads = of("StatefulSet") + of("Deployment") + of("DaemonSet")
    check(len(workloads) == 3, "kubernetes: three workloads")
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in workloads]
    for one in workloads:
        spec, where = one["spec"]["template"]["spec"], f"kubernetes: {one['metadata']['name']}"
        check(matches(one["spec"]["selector"], one["spec"]["template"]["metadata"]["labels"]), f"{where}: selects other pods")
        context, container = spec["securityContext"], spec["containers"][0]
        check(context["runAsUser"] == USER and context["runAsNonRoot"], f"{where}: not the user {USER}")
        inner = container["securityContext"]
        check(inner["readOnlyRootFilesystem"] and not inner["allowPrivilegeEscalation"], f"{where}: may write to the image")
        image = images[container["image"].split(":")[0].split("/")[-1]]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", [])}
        check(set(mounts.values()) == set(volumes) | claims, f"{where}: a mount without a volume, or the reverse")
        for volume in volumes.values():
            if "secret" in volume:
                check(volume["secret"]["secretName"] in secrets, f"{where}: no Secret {volume['secret']['secretName']}")
            if "persistentVolumeClaim" in volume:
                names = [claim["metadata"]["name"] for claim in of("PersistentVolumeClaim")]
                check(volume["persistentVolumeClaim"]["claimName"] in names, f"{where}: no such claim")
        paths = check_command(image["entry"] + container["args"], where)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            paths += check_command(container[probe]["exec"]["command"], f"{where}: {probe}")
        for path in paths:
            check(under(path, mounts), f"{where}: nothing is mounted at {path}")
        for first in spec.get("initContainers", []):
            paths = check_command(images[first["image"].split(":")[0].split("/")[-1]]["entry"] + first["args"], where)
            check(first["volumeMounts"] == container["volumeMounts"], f"{where}: enrolled into another volume")
            check(all(under(path, mounts) for path in paths), f"{where}: enrolled outside of {list(mounts)}")
            check_enrollment(first["args"], images, where)
            check(container["args"][:2] == image["command"][:2], f"{where}: runs another client than it enrolls")
            variables = {f"$({one['name']})" for one in first["env"]}
            check(variables == {word for word in first["args"] if word.startswith("$(")}, f"{where}: variables {variables}")
    server = workloads[0]
    ports = server["spec"]["template"]["spec"]["containers"][0]["ports"]
    numbers = [str(port["containerPort"]) for port in ports]
    check(numbers == images["fl-server"]["ports"], "kubernetes: not the image's ports")
    service = of("Service")[0]
    check(service["metadata"]["name"] == server["spec"]["serviceName"], "kubernetes: the set has no service")
    check(matches(service["spec"]["selector"], labels[0]), "kubernetes: the service selects no server")
    names = [port["name"] for port in ports]
    check([port["targetPort"] for port in service["spec"]["ports"]] == names, "kubernetes: the service has other ports")
    for policy in of("NetworkPolicy"):
        selected = [one for one in labels if matches(policy["spec"]["podSelector"], one)]
        check(selected, f"kubernetes: the policy {policy['metadata']['name']} selects nothing")
        for rule in policy["spec"].get("ingress", []):
            check([port["port"] for port in rule["ports"]] == names, "kubernetes: the policy closes a port of the server")
        for rule in policy["spec"].get("egress", []):
            asked = [str(port["port"]) for port in rule["ports"]]
            if set(asked) == {"53"}:
                names_dns = [peer["namespaceSelector"]["matchLabels"] for peer in rule["to"]]
                check(names_dns == [{"kubernetes.io/metadata.name": "kube-system"}], "kubernetes: port 53 of any host")
                continue
            check(asked == numbers, "kubernetes: clients may not reach a port")
            for peer in rule["to"]:
                check(matches(peer["podSelector"], labels[0]), "kubernetes: clients may not reach the server")
    check(sum(len([one for one in labels if matches(policy["spec"]["podSelector"], one)]) for policy in of("NetworkPolicy")) == 3,
          "kubernetes: a pod without a policy")
    for budget in of("PodDisruptionBudget"):
        check(any(matches(budget["spec"]["selector"], one) for one in labels), "kubernetes: a budget for nothing")


def kustomized(generator):
    """The objects that kubectl makes, with a federation of made-up files."""
    if not shutil.which("kubectl"):
        print("SKIPPED, not tested: kustomize (kubectl is not installed); the manifests were compared as they are written")
        return
    with tempfile.TemporaryDirectory() as aside:
        shutil.copytree(DEPLOY / "kubernetes", aside, dirs_exist_ok=True)
        for secret in generator:
            for file in secret["files"]:
                path = Path(aside) / file
                path.parent.mkdir(exist_ok=True)
                path.write_text("made up\n")
        text = subprocess.run(["kubectl", "kustomize", aside], check=True, capture_output=True, text=True).stdout
    objects = list(yaml.safe_load_all(text))
    secrets = {one["metadata"]["name"] for one in objects if one["kind"] == "Secret"}
    check(len(secrets) == len(generator), "kustomize makes other Secrets")
    kubernetes(images(), objects, secrets)


def units():
    for file in sorted((DEPLOY / "systemd").glob("*.service")):
        settings = re.findall(r"^([A-Za-z]+)=(.*)$", file.read_text(), re.M)
        of = lambda key: [value for name, value in settings if name == key]
        words = [word for word in of("ExecStart")[0].split() if not word.startswith("$")]
        name = Path(words[0]).name
        check(file.stem == name == of("User")[0], f"{file.name}: another program or user")
        for path in check_command(words, file.name):
            check(under(path, [f"/etc/{name}", f"/var/lib/{of('StateDirectory')[0]}"]), f"{file.name}: {path}")
        check(of("Type") == ["notify"] and of("WatchdogSec"), f"{file.name}: no watchdog")
        codes = set(of("RestartPreventExitStatus")[0].split())
        check(codes == ({"5"} if name == "fl-client" else {"2", "4"}), f"{file.name}: exit codes that heal")
        options = DEPLOY / "debian" / f"{name}.default"
        for variable in re.findall(r"\$([A-Z_]+)", of("ExecStart")[0]):
            check(f"{variable}=" in options.read_text(), f"{file.name}: {variable} is not in {options.name}")


generator = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text())
files = [DEPLOY / "kubernetes" / name for name in generator["resources"]]
written = [one for file in files for one in yaml.safe_load_all(file.read_text())]
compose(images())
kubernetes(images(), written, {secret["name"] for secret in generator["secretGenerator"]})
kustomized(generator["secretGenerator"])
units()
print(f"{checked} facts of units, images and manifests hold")
