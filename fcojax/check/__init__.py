"""Laws that every algorithm obeys; ``fcojax check my_module:my_algorithm`` checks them."""

from fcojax.check.facts import facts
from fcojax.check.laws import LAWS
from fcojax.check.limits import limit, limits
from fcojax.check.pieces import piece_laws
from fcojax.check.subject import subject_of

__all__ = ["LAWS", "facts", "limit", "limits", "piece_laws", "subject_of"]
