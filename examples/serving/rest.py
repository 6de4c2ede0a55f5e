"""Asks a served model by REST: `python rest.py localhost:8501 digit.png …`."""

import base64
import json
import sys
import urllib.request
from pathlib import Path

server, *files = sys.argv[1:]  # localhost:8501 digit.png …
instances = [{"encoded": {"b64": base64.b64encode(Path(file).read_bytes()).decode()}} for file in files]
body = json.dumps({"signature_name": "encoded", "instances": instances}).encode()
request = urllib.request.Request(
    f"http://{server}/v1/models/digits:predict", body, {"Content-Type": "application/json"}
)
for file, answer in zip(files, json.load(urllib.request.urlopen(request))["predictions"]):
    print(file, answer["classes"], max(answer["probabilities"]))
