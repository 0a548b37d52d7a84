"""`bayesin completion`: a script with which bash, zsh or fish completes verbs, flags and their known values.

The script holds everything as text, so that completing is instant. The one that tyro writes starts Python at every
key, and completes no positional word: no run folder, no `data fetch mnist`.
"""

import shlex
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from ..data import NAMES as DATASETS
from .main import VERBS, Common, load_verb
from .output import Output

BASH = """\
_bayesin() {
    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@verbs@" -- "$word"))
        return
    fi
    case "${COMP_WORDS[1]} $before" in
@values@
    esac
    case "${COMP_WORDS[1]}" in
@flags@
    esac
}
"""
# Where nothing matches, the shell offers files.
END = {"bash": "complete -o default -F _bayesin bayesin\n"}
END["zsh"] = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + END["bash"]


@dataclass(frozen=True)
class Completion(Common):
    """Print a script with which your shell completes verbs, flags and their values.

    bash:  bayesin completion bash > ~/.local/share/bash-completion/completions/bayesin
    zsh:   bayesin completion zsh > ~/.bayesin-completion && echo 'source ~/.bayesin-completion' >> ~/.zshrc
    fish:  bayesin completion fish > ~/.config/fish/completions/bayesin.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional] = "bash"
    """Which shell."""

    def run(self, out: Output) -> dict[str, Any]:
        verbs = {name: _values(name) for name in VERBS}
        script = _fish(verbs) if self.shell == "fish" else _bash(verbs) + END[self.shell]
        if not (out.quiet or out.as_json):
            print(script, end="")
        return {"shell": self.shell, "script": script}


def _values(name: str) -> dict[str, list[str]]:
    """Every flag of a verb, and the values it takes where they are known; "" stands for its positional words."""
    from .parsing import arguments

    values: dict[str, list[str]] = {}
    for argument in arguments(load_verb(name)).values():
        known = list(DATASETS) if argument.name in ("--data", "NAMES") else list(argument.choices)
        flag = "" if argument.positional else argument.name
        values[flag] = values.get(flag, []) + known
    return values


def _bash(verbs: dict[str, dict[str, list[str]]]) -> str:
    values, flags = [], []
    for name, known in verbs.items():
        for flag, choices in known.items():
            if flag and choices:
                words = shlex.quote(" ".join(choices))
                values.append(f'        "{name} {flag}") COMPREPLY=($(compgen -W {words} -- "$word")); return ;;')
        words = shlex.quote(" ".join([*known.get("", []), *filter(None, known)]))
        flags.append(f'        {name}) COMPREPLY=($(compgen -W {words} -- "$word")) ;;')
    script = BASH.replace("@verbs@", " ".join(verbs))
    return script.replace("@values@", "\n".join(values)).replace("@flags@", "\n".join(flags))


def _fish(verbs: dict[str, dict[str, list[str]]]) -> str:
    lines = []
    for name, known in verbs.items():
        summary = shlex.quote(VERBS[name].summary)
        lines.append(f"complete -c bayesin -f -n __fish_use_subcommand -a {name} -d {summary}")
        there = f"complete -c bayesin -n '__fish_seen_subcommand_from {name}'"
        for flag, choices in known.items():
            words = f" -x -a {shlex.quote(' '.join(choices))}" if choices else ""
            lines.append(f"{there}{f' -l {flag[2:]}' if flag else ''}{words}" if flag or words else "")
    return "\n".join(line for line in lines if line) + "\n"
