"""Where the package lies, and the file that starts it."""

from __future__ import annotations

import os

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MAIN = os.path.join(FOLDER, "__main__.py")
