// Refreshes a part of a page while the page is visible: fetches its HTML at intervals and replaces the old HTML.
// Focus, scrolling and open details stay. Errors, and the end of the session, are shown; errors make it slower.
// All texts come translated from the data-text-… attributes of the bar with the buttons.
"use strict";
{
    const FRAGMENT_HEADER = "X-MQueue-Fragment";
    const LAST = "last"; // The header's value if nothing more will change.
    const TIMEOUT = 20_000; // ms for one response
    const SLOWEST = 300_000; // ms between two tries after many errors

    const start = (box) => {
        const every = Number(box.dataset.mqueueEvery) * 1000;
        const fragment = box.querySelector("[data-mqueue-fragment]");
        const texts = box.querySelector(".mqueue-refresh").dataset;
        const text = (name, value) => texts[`text${name}`].replace(/\{\w+\}/, value);
        const status = box.querySelector("[data-mqueue-status]");
        const button = box.querySelector("[data-mqueue-pause]");
        const now = box.querySelector("[data-mqueue-now]");
        let paused = false;
        let over = false; // signed out, or no longer allowed: only a new page helps
        let errors = 0;
        let timer = 0;
        let due = Date.now() + every;
        let running = false;

        const say = (...texts) => {
            const all = texts.join(" ");
            // Only a new text: screen readers read it aloud.
            if (status.textContent !== all) {
                status.textContent = all;
            }
        };

        const plan = (wait) => {
            clearTimeout(timer);
            due = Date.now() + wait;
            if (!paused && !over && document.visibilityState === "visible") {
                timer = setTimeout(refresh, wait);
            }
        };

        const failed = (why) => {
            errors += 1;
            const wait = Math.min(every * 2 ** errors, SLOWEST);
            say(why, paused ? text("Paused") : text("NextTry", Math.round(wait / 1000)));
            plan(wait);
        };

        const stop = (why) => {
            over = true;
            clearTimeout(timer);
            button.hidden = true;
            say(why);
        };

        const refresh = async () => {
            if (running || over) {
                return;
            }
            running = true;
            clearTimeout(timer);
            const timeout = new AbortController();
            const alarm = setTimeout(() => timeout.abort(), TIMEOUT);
            try {
                const answer = await fetch(box.dataset.mqueueRefresh, {
                    credentials: "same-origin",
                    redirect: "manual",
                    cache: "no-store",
                    headers: {"X-Requested-With": "XMLHttpRequest"},
                    signal: timeout.signal,
                });
                if (answer.type === "opaqueredirect" || answer.status === 401) {
                    stop(text("SignedOut"));
                } else if (answer.status === 403) {
                    stop(text("Forbidden"));
                } else if (answer.status === 404) {
                    stop(text("Gone"));
                } else if (!answer.ok) {
                    failed(text("Status", answer.status));
                } else if (!answer.headers.has(FRAGMENT_HEADER)) {
                    failed(text("OtherPage"));
                } else {
                    const html = await answer.text();
                    if (!isReading(fragment)) {
                        replace(fragment, html);
                    }
                    errors = 0;
                    if (answer.headers.get(FRAGMENT_HEADER) === LAST) {
                        stop(text("Last"));
                    } else {
                        say(paused ? text("Paused") : "");
                        plan(every);
                    }
                }
            } catch (error) {
                failed(text(error.name === "AbortError" ? "Timeout" : "Unreachable"));
            } finally {
                clearTimeout(alarm);
                running = false;
            }
        };

        button.hidden = false;
        button.addEventListener("click", () => {
            paused = !paused;
            button.textContent = text(paused ? "Resume" : "Pause");
            clearTimeout(timer);
            if (paused) {
                say(text("Paused"));
            } else {
                say("");
                refresh();
            }
        });
        now.addEventListener("click", (event) => {
            if (!over && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
                event.preventDefault();
                refresh();
            }
        });
        document.addEventListener("visibilitychange", () => {
            if (document.visibilityState === "visible") {
                plan(Math.max(due - Date.now(), 0));
            } else {
                clearTimeout(timer);
            }
        });
        plan(every);
    };

    // Replacing the fragment would remove a text selection.
    const isReading = (fragment) => {
        const chosen = document.getSelection();
        return chosen !== null && !chosen.isCollapsed && fragment.contains(chosen.anchorNode);
    };

    const focusable = (fragment) => [...fragment.querySelectorAll("a[href], summary, button, input, [tabindex]")];
    const nameOf = (element) => element.id || element.getAttribute("href") || element.tagName;

    const replace = (fragment, html) => {
        const focused = fragment.contains(document.activeElement) ? document.activeElement : null;
        const name = focused && nameOf(focused);
        const same = (element) => nameOf(element) === name;
        const place = focused && focusable(fragment).filter(same).indexOf(focused);
        const scrolled = [...fragment.querySelectorAll(".mqueue-scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
        const details = [...fragment.querySelectorAll("details[id]")].map((one) => [one.id, one.open]);
        const [x, y] = [window.scrollX, window.scrollY];

        const fresh = new DOMParser().parseFromString(html, "text/html");
        fragment.replaceChildren(...fresh.body.childNodes);
        document.dispatchEvent(new CustomEvent("mqueue:replaced"));

        for (const [id, isOpen] of details) {
            document.getElementById(id)?.toggleAttribute("open", isOpen);
        }
        fragment.querySelectorAll(".mqueue-scroll").forEach((one, number) => {
            if (scrolled[number]) {
                [one.scrollLeft, one.scrollTop] = scrolled[number];
            }
        });
        if (focused) {
            const equal = focusable(fragment).filter(same);
            (equal[place] ?? equal[0])?.focus({preventScroll: true});
        }
        window.scrollTo(x, y);
    };

    document.querySelectorAll("[data-mqueue-refresh]").forEach(start);
}
