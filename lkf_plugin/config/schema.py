"""The whole configuration as typed groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from lkf_plugin.config.methods import METHOD_SETTINGS
from lkf_plugin.config.network import DDIT, LKF, Network, network_keys, network_of, title_of
from lkf_plugin.config.objective import LOSSES
from lkf_plugin.config.process import Process
from lkf_plugin.config.running import Checkpointing, Loader, Strategy, Trainer
from lkf_plugin.config.sampling import Eval, Sampling
from lkf_plugin.config.training import SCHEDULES, Init, Noise, Optim, Schedule, Training
from lkf_plugin.config.variants import Variants
from lkf_plugin.data.corpus import CORPORA, CorpusSettings
from lkf_plugin.decode.options import DecodeOptions
from lkf_plugin.decode.registry import AUTO, HOST_SAMPLER, POLICIES
from lkf_plugin.errors import UserError
from lkf_plugin.methods.method import MethodSettings
from lkf_plugin.objective.objective import LossSettings
from lkf_plugin.settings.fields import Group, alternatives
from lkf_plugin.settings.sentences import Mistake, mistake_of, show, unknown_key, unresolved

G = TypeVar("G", bound=Group)
DECODINGS: Variants[DecodeOptions] = Variants(
    POLICIES, lambda policy: policy.options, {AUTO: DecodeOptions, HOST_SAMPLER: DecodeOptions}
)
CORPUS_SETTINGS: Variants[CorpusSettings] = Variants(CORPORA, lambda corpus: corpus.Settings, {})


@dataclass(frozen=True)
class Settings:
    """A configuration whose every value has its type and range."""

    process: Process
    model: Network
    loss: LossSettings
    method: MethodSettings
    decode: DecodeOptions
    sampling: Sampling
    training: Training
    optim: Optim
    lr_scheduler: Group
    noise: Noise
    loader: Loader
    trainer: Trainer
    eval: Eval
    checkpointing: Checkpointing
    init: Init
    strategy: Strategy
    data: CorpusSettings


GROUPS = tuple(name for name in Settings.__dataclass_fields__ if name != "process")


class Unresolved:
    """Stands for a value whose interpolation failed."""


class Reader:
    """Reads a composed config, and collects what is wrong with it.

    Args:
        config: the composed config; it is left as it is.
    """

    def __init__(self, config: DictConfig) -> None:
        self.derived: set[str] = set()  # keys whose values come from other keys
        self.mistakes: list[Mistake] = []
        self.tree = self._plain(config, "")
        self.tree.pop("hydra", None)

    def read(self) -> Settings:
        """All groups.

        Raises:
            UserError: names one mistake; a key that was set before one derived from it.
        """
        method = self._variant("method", "name", METHOD_SETTINGS)
        model_type = self._value("model", "type")
        loss = self._variant("loss", "name", LOSSES)
        decode = self._variant("decode", "policy", DECODINGS)
        corpus = self._variant("data", "kind", CORPUS_SETTINGS)
        whose = f"data.kind={self._value('data', 'kind')}"  # the keys of data
        schedule = SCHEDULES.get(_hashable(self._value("lr_scheduler", "_target_")), Schedule)
        network = network_of(
            model_type, self._value("method", "name"), self._value("model", "latent")
        )
        fixed: dict[str, type[Group]] = {
            "sampling": Sampling,
            "training": Training,
            "optim": Optim,
            "noise": Noise,
            "loader": Loader,
            "trainer": Trainer,
            "eval": Eval,
            "checkpointing": Checkpointing,
            "init": Init,
            "strategy": Strategy,
        }
        top = {key: value for key, value in self.tree.items() if key not in GROUPS}
        for key in GROUPS:
            if not isinstance(self.tree.get(key), dict):
                self._refuse(key, f"{key}={show(self.tree.get(key))} must be a group of settings.")
        groups: dict[str, Any] = {
            "process": self._group(Process, top, ""),
            "model": self._network(network, model_type),
            "loss": loss and self._group(loss, self.tree["loss"], "loss"),
            "method": method and self._group(method, self.tree["method"], "method"),
            "decode": decode and self._group(decode, self.tree["decode"], "decode"),
            "lr_scheduler": self._group(schedule, self.tree.get("lr_scheduler"), "lr_scheduler"),
            **{name: self._group(kind, self.tree.get(name), name) for name, kind in fixed.items()},
            "data": corpus and self._group(corpus, self.tree["data"], "data", whose),
        }
        self._tell()
        return Settings(**groups)

    # --- groups --------------------------------------------------------------------------------

    def _group(self, kind: type[G], values: Any, prefix: str, whose: str = "") -> G | None:
        if not isinstance(values, dict):
            return None
        try:
            return kind.model_validate(values)
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False):
                if not isinstance(detail["input"], Unresolved):  # told where it was read
                    self.mistakes.append(mistake_of(detail, kind, prefix, whose))
        return None

    def _variant(self, group: str, key: str, classes: Variants[G]) -> type[G] | None:
        """The class of a group that depends on its own name."""
        name = self._value(group, key)
        if isinstance(name, str):
            try:
                return classes.of(name)
            except UserError as error:
                if "." in name:
                    self._refuse(f"{group}.{key}", f"{group}.{key}={show(name)}: {error}")
                    return None
        known = alternatives(classes.names())
        self._refuse(f"{group}.{key}", f"{group}.{key}={show(name)} is unknown: take {known}.")
        return None

    def _network(self, network: type[Network], type_name: Any) -> Network | None:
        """``model``; keys of another network are called so."""
        values = self.tree.get("model")
        if not isinstance(values, dict):
            return None
        if type_name not in (DDIT, LKF):
            sentence = f"model.type={show(type_name)} is unknown: take {DDIT} or {LKF}."
            self._refuse("model.type", sentence)
            return None
        for key in sorted(values.keys() - network.model_fields.keys()):
            full = f"model.{key}"
            if key in network_keys():
                self._refuse(
                    full,
                    f"{full}={show(values[key])} is not read by {title_of(network)}: leave it out, "
                    "or take a network that has it.",
                )
            else:
                self._refuse(full, unknown_key(full, list(network.model_fields)))
        known = {key: value for key, value in values.items() if key in network.model_fields}
        return self._group(network, known, "model")

    def _value(self, group: str, key: str) -> Any:
        values = self.tree.get(group)
        return values.get(key) if isinstance(values, dict) else None

    # --- mistakes ------------------------------------------------------------------------------

    def _refuse(self, key: str, sentence: str) -> None:
        self.mistakes.append(Mistake(key, sentence))

    def _tell(self) -> None:
        """Raises the mistake that was typed, rather than one that follows from it."""
        if self.mistakes:
            first = min(self.mistakes, key=lambda mistake: mistake.key in self.derived)
            raise UserError(first.sentence)

    # --- values --------------------------------------------------------------------------------

    def _plain(self, node: DictConfig, prefix: str) -> dict[str, Any]:
        """The values of a node, interpolations worked out one by one."""
        values: dict[str, Any] = {}
        for name in map(str, node):
            key, full = name, f"{prefix}{name}"
            if OmegaConf.is_missing(node, name):
                continue  # as if it were not there
            if OmegaConf.is_interpolation(node, name):
                self.derived.add(full)
            try:
                value = node[name]
                if isinstance(value, DictConfig):
                    values[key] = self._plain(value, f"{full}.")
                elif isinstance(value, ListConfig):
                    values[key] = OmegaConf.to_container(value, resolve=True)
                else:
                    values[key] = value
            except OmegaConfBaseException as error:
                self.derived.add(full)
                values[key] = Unresolved()
                self._refuse(full, unresolved(full, error))
        return values


def write_back(settings: Settings, reader: Reader, config: DictConfig) -> None:
    """Gives ``config`` the types of the schema where the command line gave others, in place.

    An interpolation stays one, unless it is itself what has the other type. What the YAML of a
    corpus leaves out gets its default.
    """
    changed: list[tuple[str, Any]] = []
    for name in Settings.__dataclass_fields__:
        raw = reader.tree if name == "process" else reader.tree[name]
        changed += _typed(getattr(settings, name), raw, "" if name == "process" else f"{name}.")
    for key, value in sorted(changed, key=lambda item: item[0] in reader.derived):
        if type(OmegaConf.select(config, key)) is not type(value):
            with open_dict(config):
                OmegaConf.update(config, key, value)
    with open_dict(config):
        for key, value in settings.data.model_dump().items():
            config.data.setdefault(key, value)


def _typed(group: BaseModel, raw: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    changed: list[tuple[str, Any]] = []
    for attribute, field in type(group).model_fields.items():
        name, value = field.alias or attribute, getattr(group, attribute)
        if name not in raw:
            continue
        if isinstance(value, BaseModel):
            changed += _typed(value, raw[name], f"{prefix}{name}.")
        elif type(value) is not type(raw[name]) and (type(value), type(raw[name])) != (float, int):
            if not isinstance(value, dict):  # null stays null
                changed.append((f"{prefix}{name}", value))
    return changed


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str) else None
