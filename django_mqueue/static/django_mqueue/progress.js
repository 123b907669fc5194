// An operation in steps: goes on by itself while its page is open.
"use strict";
{
    const form = document.querySelector("form.mqueue-step");
    if (form) {
        setTimeout(() => form.requestSubmit(), 300);
    }
}
