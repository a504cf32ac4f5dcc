"""What SGLang 0.5.23's own recorder dumps, read back by our importer: exactly the counts that it was fed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine_loader
