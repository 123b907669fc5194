"""The forms of steps: a comment, and what each verb needs in addition."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ...admin.base.forms import Moment
from .. import states
from ..models import WorkItem
from ..registry import Worklist
from ..steps import COMMENT_MAX
from .display import state_text


class StepForm(forms.Form):
    """A step: a comment, and what the verb of ``WorkItem`` takes in addition."""

    comment = forms.CharField(
        required=False,
        max_length=COMMENT_MAX,
        label=gettext_lazy("Comment"),
        widget=forms.Textarea({"rows": 3}),
    )
    field_order = ("user", "team", "until", "at", "result", "state")  # The comment is last.

    def __init__(self, data: Any, worklist: Worklist, items: list[WorkItem]) -> None:
        super().__init__(data)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the verb, without the comment. An empty field is None."""
        return {name: value or None for name, value in self.cleaned_data.items() if name != "comment"}


class AssignForm(StepForm):
    user: Any = forms.ModelChoiceField(None, required=False, label=gettext_lazy("User"))
    team: Any = forms.ModelChoiceField(None, required=False, label=gettext_lazy("Team"))

    def __init__(self, data: Any, worklist: Worklist, items: list[WorkItem]) -> None:
        super().__init__(data, worklist, items)
        permission = worklist.permission("take")
        users: Any = get_user_model()._default_manager
        found = users.all()  # A custom user model may have no ``with_perm``.
        if hasattr(users, "with_perm"):
            found = users.with_perm(permission, backend="django.contrib.auth.backends.ModelBackend")
        self.fields["user"].queryset = found  # type: ignore[attr-defined]
        teams = Group.objects.filter(permissions__codename=permission.partition(".")[2])
        self.fields["team"].queryset = teams  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if bool(data.get("user")) == bool(data.get("team")) and not self.errors:
            raise ValidationError(_("Give a user or a team, and not both."))
        return data

    def arguments(self) -> dict[str, Any]:
        return {"to": self.cleaned_data["user"] or self.cleaned_data["team"]}


class DelayForm(StepForm):
    until = Moment(label=gettext_lazy("Until"))


class DueForm(StepForm):
    at = Moment(required=False, label=gettext_lazy("Due"), help_text=gettext_lazy("Empty: no due date."))


class FinishForm(StepForm):
    result = forms.CharField(
        required=False,
        max_length=COMMENT_MAX,
        label=gettext_lazy("Result"),
        help_text=gettext_lazy("Empty: what the worklist's own work returns."),
    )


class MoveForm(StepForm):
    state = forms.ChoiceField(label=gettext_lazy("State"))

    def __init__(self, data: Any, worklist: Worklist, items: list[WorkItem]) -> None:
        super().__init__(data, worklist, items)
        declared = worklist.options.states
        possible = {name: None for item in items for name in states.moves(declared, item.state)}
        self.fields["state"].choices = [(name, state_text(name)) for name in possible]  # type: ignore[attr-defined]


class CommentForm(StepForm):
    def __init__(self, data: Any, worklist: Worklist, items: list[WorkItem]) -> None:
        super().__init__(data, worklist, items)
        self.fields["comment"].required = True


FORMS: dict[str, type[StepForm]] = {
    states.ASSIGN: AssignForm,
    states.DELAY: DelayForm,
    states.SET_DUE: DueForm,
    states.FINISH: FinishForm,
    states.MOVE: MoveForm,
    states.COMMENT: CommentForm,
}
