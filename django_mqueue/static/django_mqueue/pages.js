// All pages of the queue: times as ages, with the exact time in the tooltip, tables as cards on narrow screens, and forms that a double click
// sends once.
"use strict";
{
    const SECONDS = {day: 86_400, hour: 3_600, minute: 60, second: 1};
    const style = {style: "short"};
    const ages = new Intl.RelativeTimeFormat(document.documentElement.lang || "en", style);
    const now = new Intl.RelativeTimeFormat(document.documentElement.lang || "en", {...style, numeric: "auto"});
    const server = document.querySelector("[data-mqueue-clock]");
    // How much this computer's clock is ahead of the server's.
    const ahead = server ? Date.now() - Number(server.dataset.mqueueClock) : 0;

    const ageOf = (element) => {
        const seconds = Math.trunc((Date.parse(element.dateTime) - Date.now() + ahead) / 1000);
        const unit = Object.keys(SECONDS).find((one) => Math.abs(seconds) >= SECONDS[one]);
        return unit ? ages.format(Math.trunc(seconds / SECONDS[unit]), unit) : now.format(0, "second");
    };

    const showAges = () => {
        for (const element of document.querySelectorAll("time.mqueue-moment")) {
            element.dataset.mqueueExact ??= element.textContent;
            const isAge = "mqueueAge" in element.dataset;
            const text = isAge ? ageOf(element) : `${element.dataset.mqueueExact} (${ageOf(element)})`;
            if (element.textContent !== text) {
                element.textContent = text;
            }
        }
    };

    // The style sheet shows each row of such a table as a card. Then browsers forget the roles, and each cell needs a label.
    const labelCells = (table) => {
        const labels = [...table.tHead.rows[0].cells].flatMap((cell) => Array(cell.colSpan).fill(cell.textContent.trim()));
        table.setAttribute("role", "table");
        for (const part of table.querySelectorAll("thead, tbody, tfoot")) {
            part.setAttribute("role", "rowgroup");
        }
        for (const row of table.rows) {
            row.setAttribute("role", "row");
            let column = 0;
            for (const cell of row.cells) {
                const inHead = row.parentElement === table.tHead;
                cell.setAttribute("role", inHead ? "columnheader" : cell.tagName === "TH" ? "rowheader" : "cell");
                if (!inHead && cell.tagName === "TD" && cell.colSpan === 1) {
                    cell.dataset.label = labels[column] ?? "";
                }
                column += cell.colSpan;
            }
        }
        table.classList.add("mqueue-cards");
    };

    const prepare = () => {
        showAges();
        const tables = ".mqueue-scroll > table:not(.mqueue-standing, .mqueue-cards, .mqueue-diff), #changelist #result_list";
        [...document.querySelectorAll(tables)].filter((table) => table.tHead).forEach(labelCells);
    };

    // A double click must not send a form twice.
    document.addEventListener("submit", (event) => {
        if (event.target.method === "post" && !event.defaultPrevented) {
            if ("mqueueSent" in event.target.dataset && event.submitter?.name !== "stop") {
                event.preventDefault();
            }
            event.target.dataset.mqueueSent = "";
        }
    });
    addEventListener("pageshow", () => {
        for (const form of document.querySelectorAll("[data-mqueue-sent]")) {
            delete form.dataset.mqueueSent;
        }
    });

    prepare();
    document.addEventListener("mqueue:replaced", prepare);
    setInterval(() => document.visibilityState === "visible" && showAges(), 1000);
}
