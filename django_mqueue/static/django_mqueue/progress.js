// An operation in steps: submits the next step while its page is open, until the user points at "Stop". If a worker does
// the steps, it loads the page again after "data-wait" milliseconds.
"use strict";
{
    const form = document.querySelector("form.mqueue-step");
    const stop = document.querySelector("[name=stop]");
    if (form) {
        const timer = setTimeout(() => form.requestSubmit(), Number(form.dataset.wait ?? 300));
        for (const event of ["pointerenter", "pointerdown", "focus", "click"]) {
            stop?.addEventListener(event, () => clearTimeout(timer));
        }
    }
}
