"""The click group at the root: its sub-commands are names and summaries until one is run."""

from __future__ import annotations

from typing import Any, cast

import click

from soma._hints import NAMES
from soma._version import __version__
from soma.cli.streams import OutputLost, give_up, heard_or_not, show_everything, told_apart
from soma.errors import SomaError, UnknownName, did_you_mean
from soma.plugins import builtin_report, reports
from soma.plugins.locate import locate
from soma.plugins.report import conflicts, name_claimants
from soma.registry import Offer, default
from soma.specs import CommandSpec

__all__ = ["run"]

_INTERRUPTED = 130  # what a shell reports for a process ended by SIGINT


class _LazyGroup(click.Group):
    """Finds commands in the registry. Help is written from specs: no target is imported for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return sorted({offer.spec.name for offer in _offers()})

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Understand the arguments; help is printed here."""
        with told_apart():  # click's own end of a closed pipe is 1, as of what went wrong
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; what it returns is nobody's exit status."""
        with told_apart():
            super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            command = default().get(cmd_name, CommandSpec)
        except UnknownName:
            return None
        except SomaError as error:
            if ctx.resilient_parsing:  # a shell completes a line: one broken command is no reason
                return click.Command(cmd_name)  # to complete nothing
            raise click.ClickException(str(error)) from error
        if not isinstance(command, click.Command):
            offer = default().find(cmd_name, CommandSpec)
            raise click.ClickException(
                f"The command {cmd_name!r} of {offer.dist} {offer.version} is not a click.Command "
                f"but of type {type(command).__name__}. See: soma plugins check {offer.dist}"
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None:
            hinted = [of for label, of in NAMES if label == CommandSpec.label]
            near = did_you_mean(name, [*self.list_commands(ctx), *hinted])
            if "Did you mean" not in near:
                near = did_you_mean(name, self.list_commands(ctx))
            ctx.fail(f"There is no command {name!r}.{near}")
        return name, command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        rows = sorted({(offer.spec.name, _summary(offer)) for offer in _offers()})
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        left_out = [report for report in reports() if report.status == "failed"]
        if left_out:
            with formatter.section("Plugins left out (soma plugins show NAME)"):
                formatter.write_dl([(report.dist, report.error) for report in left_out])


def _offers() -> tuple[Offer, ...]:
    """Return the commands there are; a strict environment may not keep help from working."""
    found = (*builtin_report().offers, *(offer for report in reports() for offer in report.offers))
    return tuple(offer for offer in found if isinstance(offer.spec, CommandSpec))


def _summary(offer: Offer) -> str:
    claimants = conflicts(reports()).get((offer.spec.label, offer.spec.name), ())
    if claimants:
        return f"(broken) claimed by {name_claimants(claimants)}"
    module = offer.spec.target.partition(":")[0]
    if locate(module) is None:
        return f"(broken) {offer.dist} {offer.version} has no module {module}"
    return offer.spec.summary


@click.command(
    cls=_LazyGroup, name="soma", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="soma", message="%(prog)s %(version)s")
def soma() -> None:
    """Run and look after research pipelines.

    Plugins add commands of their own: see soma plugins list.
    """


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit status."""
    show_everything()  # names may hold what a terminal has no sign for
    try:
        status: Any = soma.main(arguments, prog_name="soma", standalone_mode=False)
    except OutputLost as error:
        return give_up(cast("OSError", error.__cause__))
    except click.ClickException as error:
        with heard_or_not():
            error.show()
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except click.Abort as error:  # what click makes of Ctrl-C, and of "no" to a question
        _say("Aborted.")
        return _INTERRUPTED if isinstance(error.__cause__, KeyboardInterrupt) else 1
    except SomaError as error:
        _say(f"Error: {error}")
        return 1
    return status if isinstance(status, int) else 0


def _say(text: str) -> None:
    with heard_or_not():
        click.echo(text, err=True)
