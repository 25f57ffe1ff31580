"""How the questions are answered: specification, model, backends, execution, judgement, decision.

Importing this package imports neither torch nor any vendor's library.
"""

from typing import Final

__version__: Final = "0.1.0"
