// A list with check boxes: one box selects all rows of the page.
"use strict";
{
    const page = document.querySelector(".mqueue-select-page");
    const boxes = document.querySelectorAll("input.mqueue-select");
    if (page) {
        page.hidden = false;
        page.addEventListener("change", () => {
            for (const box of boxes) {
                box.checked = page.checked;
            }
        });
    }
}
