"""An Ultralytics detector on synthetic images with red and blue boxes: `python3 yolo.py I N`."""

import sys
from pathlib import Path

import fl
import numpy as np
from PIL import Image
from ultralytics import YOLO

part = np.random.default_rng(int(sys.argv[1]))
folder = Path("yolo-data", sys.argv[1]).resolve()
for split, count in (("train", 48), ("val", 24)):
    for kind in ("images", "labels"):
        (folder / kind / split).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        image, lines = part.integers(0, 60, (96, 96, 3), dtype=np.uint8), []
        for label in part.integers(0, 2, 2):
            (w, h), (x, y) = part.integers(16, 40, 2), part.integers(0, 56, 2)
            image[y : y + h, x : x + w] = ((220, 40, 40), (40, 60, 230))[label]
            lines.append(f"{label} {(x + w / 2) / 96} {(y + h / 2) / 96} {w / 96} {h / 96}")
        Image.fromarray(image).save(folder / "images" / split / f"{i}.png")
        (folder / "labels" / split / f"{i}.txt").write_text("\n".join(lines))
(folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [red, blue]\n")

fl.yolo(YOLO("yolov8n.yaml"), data=folder / "data.yaml", imgsz=96, optimizer="AdamW", lr0=0.002, plots=False)
