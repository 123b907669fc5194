// An operation in steps: submits the next step while its page is open, until the user points at "Stop".
"use strict";
{
    const form = document.querySelector("form.mqueue-step");
    const stop = form?.querySelector("[name=stop]");
    if (form) {
        const timer = setTimeout(() => form.requestSubmit(), 300);
        for (const event of ["pointerenter", "pointerdown", "focus", "click"]) {
            stop?.addEventListener(event, () => clearTimeout(timer));
        }
    }
}
