"""`milepost completion`: print the completion script for a shell."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script.

    \b
    bash:  eval "$(milepost completion bash)"     in ~/.bashrc
    zsh:   eval "$(milepost completion zsh)"      in ~/.zshrc, after compinit
    fish:  milepost completion fish | source      in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "milepost", "_MILEPOST_COMPLETE").source())
