"""``model``: what each network reads. A key that the chosen one would pass over is refused."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from pydantic import Field, create_model

from lkf_plugin.backbone.latent import BLOCK, ROUTER_READS, SHARED_BLOCKS, SITES
from lkf_plugin.errors import UserError
from lkf_plugin.latents.structure import STRUCTURES
from lkf_plugin.methods.method import METHODS, NONE
from lkf_plugin.settings.fields import (
    Choice,
    Count,
    FieldType,
    Flag,
    Fraction,
    Group,
    Name,
    NotNegative,
    Number,
    Positive,
    Real,
    alternatives,
)

DDIT, LKF = "ddit", "lkf"
TRUNKS = ("matched", "native")


class Network(Group):
    """What all networks share, by MDLM's names."""

    type: Annotated[str, Choice(DDIT, LKF)]
    name: Name
    hidden_size: Count
    n_blocks: Count
    n_heads: Count
    length: Count
    cond_dim: Count
    dropout: Fraction
    tie_word_embeddings: Flag
    scale_by_sigma: Flag
    activation_checkpointing: Flag


class MdlmNetwork(Network):
    """MDLM's own transformer."""


class DenoiserNetwork(Network):
    """The network of the diffusion baselines: MDLM's, or the native trunk without a latent."""

    trunk: Annotated[str, Choice(*TRUNKS)] = "matched"
    open_gates: Flag = False
    local_heads: Flag = False


class CausalNetwork(Network):
    """The autoregressive baseline's network. It has one trunk and one start."""

    trunk: Annotated[None, Choice(None)] = None
    open_gates: Annotated[bool, Choice(False)] = False
    local_heads: Annotated[bool, Choice(False)] = False


class Structured(FieldType):
    """The name of a latent structure; one with a dot is imported."""

    def words(self) -> str:
        """What is allowed."""
        return f"{alternatives(tuple(STRUCTURES))}, or module.name of your own"

    def __call__(self, value: Any) -> str:
        """A name that the registry knows."""
        try:
            STRUCTURES[str(value)]
        except UserError as error:
            raise ValueError(str(error)) from error
        return str(value)


class LatentKernelNetwork(Network):
    """The latent-kernel network."""

    latent: Annotated[str, Structured()]
    num_components: Count
    block_components: Count
    block_length: Annotated[int | None, Number(low=1, whole=True, null=True)]
    sticky: Real
    latent_blocks: Count
    latent_site: Annotated[str, Choice(*SITES)] = BLOCK
    router_reads: Annotated[str, Choice(*ROUTER_READS)] = SHARED_BLOCKS
    trunk: Annotated[str, Choice(*TRUNKS)]
    latent_emb_std: Positive
    latent_film_std: NotNegative
    open_gates: Flag
    local_heads: Flag
    compile_blocks: Flag = Field(default=False)

    @property
    def components(self) -> int:
        """M, the branch passes of a row."""
        return self.num_components * self.block_components


TITLES: dict[type[Network], str] = {
    MdlmNetwork: "MDLM's own network (model.type=ddit, method=auto)",
    DenoiserNetwork: "the network of this method (model.type=ddit)",
    CausalNetwork: "the network of method=ar",
    LatentKernelNetwork: "the latent-kernel network (model.type=lkf)",
}


def network_of(type_name: Any, method: Any, latent: Any) -> type[Network]:
    """The network that ``model.type``, ``method.name`` and ``model.latent`` mean together."""
    if type_name == LKF:
        try:
            return _with(STRUCTURES[str(latent)].Settings)
        except UserError:  # its type says so
            return LatentKernelNetwork
    name = method if isinstance(method, str) and method in METHODS else NONE
    kinds: dict[str, type[Network]] = {
        "own": MdlmNetwork,
        "latent": DenoiserNetwork,  # which the rules of the method then refuse
        "causal": CausalNetwork,
        "denoiser": DenoiserNetwork,
    }
    return kinds[METHODS[name].network]


@functools.cache
def _with(own: type[Group]) -> type[LatentKernelNetwork]:
    """The latent-kernel network with the keys that its structure has of its own."""
    if own is Group:
        return LatentKernelNetwork
    bases: Any = (LatentKernelNetwork, own)
    return create_model("StructuredNetwork", __base__=bases)  # type: ignore[no-any-return]


def title_of(network: type[Network]) -> str:
    """What a network is called."""
    return next(title for kind, title in TITLES.items() if issubclass(network, kind))


def network_keys() -> set[str]:
    """Keys of any network."""
    groups: list[type[Group]] = [*TITLES, *(STRUCTURES[name].Settings for name in STRUCTURES)]
    return {key for group in groups for key in group.model_fields}
