"""The report of a run in a real browser, against independent numbers."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import yaml

from tests.browser import Browser, open_browser
from tests.root import ROOT, run_python
from tests.stack import HERE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PHONE, DESKTOP = 390, 1200


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with open_browser(tmp_path / "browser") as browser:
        yield browser


def texts(browser: Browser, selector: str) -> list[str]:
    return browser.evaluate(
        f"[...document.querySelectorAll({selector!r})].map(e => e.innerText.trim().replace(/\\s+/g, ' '))"
    )


def table(browser: Browser, name: str) -> list[list[str]]:
    rows = f"[...document.querySelectorAll('#{name} tbody tr')]"
    return browser.evaluate(f"{rows}.map(row => [...row.cells].map(cell => cell.innerText.trim()))")


def check_page(browser: Browser, page: Path) -> None:
    """Checks that the page has no console messages or requests and fits the screen's width, light or dark."""
    for width, dark in ((DESKTOP, False), (PHONE, True)):
        browser.open(page, width, dark=dark)
        assert browser.console_messages() == []
        assert browser.requests() == [page.resolve().as_uri()]
        assert browser.evaluate("document.documentElement.scrollWidth") == width
        # Nothing overflows except in scrollable boxes.
        wide = "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre, svg') && "
        wide += "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        assert browser.evaluate(wide) == []
        # On a desktop nothing has to be scrolled sideways, and no text is cut.
        cut = "[...document.querySelectorAll('main *')].filter(e => !e.matches('.hidden') && e.clientWidth && "
        cut += "getComputedStyle(e).overflowX != 'visible' && e.scrollWidth > e.clientWidth).map(e => e.outerHTML)"
        assert width == PHONE or browser.evaluate(cut) == []
        # Contents must be visible: text contrasts, and charts have a size.
        assert browser.evaluate(
            "getComputedStyle(document.body).color != getComputedStyle(document.body).backgroundColor"
        )
        assert browser.evaluate("[...document.querySelectorAll('figure > svg')].every(e => e.clientHeight > 100)")
        assert browser.evaluate("[...document.querySelectorAll('img')].every(e => e.naturalWidth > 0 && e.alt)")


def test_the_report_of_a_run_shows_its_results(digits_run, served_digits, browser):
    page = digits_run.logs / "report.html"
    assert f"report        {page}\n" in digits_run.output
    assert page.stat().st_size < 3_000_000
    check_page(browser, page)
    browser.open(page, DESKTOP)
    assert "Left out" not in browser.evaluate("document.body.innerText")
    card = (digits_run.logs / "model_card.md").read_text()
    assert f"model card    {digits_run.logs / 'model_card.md'}\n" in digits_run.output
    assert f"| accuracy | {digits_run.summary['accuracy']:.4f} |" in card
    results, labels, probabilities = digits_run.summary, served_digits["labels"], served_digits["probabilities"]
    guesses = probabilities.argmax(axis=1)

    tiles = dict(zip(texts(browser, ".tiles dt"), texts(browser, ".tiles dd")))
    assert tiles["accuracy"] == f"{100 * results['accuracy']:.2f} % 359 evaluation examples"
    assert tiles["mean loss"] == f"{results['loss']:.4g} cross-entropy"
    assert tiles["mistakes"] == f"{(guesses != labels).sum()} of 359 predictions"
    assert tiles["blessed"] == "yes pushed"

    # The graph: every component with its state and its dependencies.
    waits = dict(line.split(" , after ") for line in texts(browser, ".graph .node") if "," in line)
    assert waits["BaselineResolver"] == "Trainer"
    assert waits["Transform"] == "TfdsExampleGen, ImageSchemaGen, ExampleValidator"
    assert waits["Pusher"] == "TfdsExampleGen, Trainer, Evaluator"
    assert browser.evaluate("document.querySelectorAll('.graph path').length") == sum(
        len(each["upstream"]) for each in results["components"]
    )
    assert texts(browser, ".graph .pill") == [each["state"] for each in results["components"]]

    # The curves end at the last steps of training and evaluation.
    captions = dict(zip(texts(browser, "#training figure h3"), texts(browser, "#training figcaption")))
    training = results["training"]
    assert f"eval {training['eval_average_loss']:.4g} at step 600" in captions["loss"]
    assert f"eval {training['eval_accuracy']:.4g} at step 600" in captions["accuracy"]
    assert re.search(r"train [\d.]+ at step 600, ", captions["accuracy"])
    assert "None." in texts(browser, "#training p")

    # The confusion matrix.
    matrix = np.zeros((10, 10), int)
    np.add.at(matrix, (labels, guesses), 1)
    shown = [[0 if cell == "·" else int(cell) for cell in row[1:]] for row in table(browser, "confusion")]
    assert shown == matrix.tolist()
    recalls = [f"{100 * matrix[each, each] / matrix[each].sum():.1f} %" for each in range(10)]
    assert [row[2] for row in table(browser, "classes")] == recalls
    assert [int(row[4]) for row in table(browser, "classes")] == matrix.sum(axis=1).tolist()

    # The worst mistake, pixel by pixel.
    losses = np.where(guesses == labels, -1, -np.log(probabilities[np.arange(len(labels)), labels]))
    worst = int(losses.argmax())
    cards = texts(browser, ".mistakes li")
    assert len(cards) == min((guesses != labels).sum(), 20)
    assert cards[0].startswith(f"{labels[worst]} taken for {guesses[worst]} ")
    assert cards[0].endswith(f"loss {losses[worst]:.2f} example {worst}")
    assert f"{guesses[worst]}: {100 * probabilities[worst].max():.1f} %" in cards[0]
    source = browser.evaluate("document.querySelector('.mistakes img').src")
    picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(source.partition(",")[2])), format="png")
    assert np.array_equal(np.rint(picture * 255).astype(np.uint8), served_digits["images"][worst, ..., 0])

    # The data.
    counts = table(browser, "counts")
    assert [int(row[2]) for row in counts] == np.bincount(labels).tolist()
    assert sum(int(row[1].replace(",", "")) for row in counts) == results["examples"]["train"]
    assert browser.evaluate("document.querySelectorAll('#counts img').length") == 80
    splits = {row[0]: row[1:] for row in table(browser, "splits")}
    assert splits["mean pixel, by channel"][1] == f"{served_digits['images'].mean():.1f}"
    assert splits["standard deviation"][1] == f"{served_digits['images'].std():.1f}"

    # The declaration is complete, with the origin of each value.
    assert yaml.safe_load(browser.evaluate("document.querySelector('pre').textContent")) == yaml.safe_load(
        (digits_run.logs / "declaration.yaml").read_text()
    )
    assert ["trainer.model: mnist_cnn", "preset digits:19"] in table(browser, "chosen")
    versions = dict(zip(texts(browser, "#versions tbody th"), texts(browser, "#versions tbody td")))
    assert (versions["tfx"], versions["tensorflow"]) == (HERE.tfx, HERE.tensorflow)


@pytest.mark.long
def test_the_report_of_several_runs_overlays_their_curves(digits_run, browser, tmp_path):
    page = tmp_path / "both.html"
    logs = str(digits_run.logs)
    done = run_python("-m", "tfx_estimator", "report", logs, logs, "--output", str(page), cwd=ROOT)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"wrote {page}\n")
    check_page(browser, page)
    first, second = (f"{digits_run.logs.name} ({number})" for number in (1, 2))
    assert texts(browser, ".legend li") == [first, second]
    assert ["accuracy", *[f"{100 * digits_run.summary['accuracy']:.2f} %"] * 2] in table(browser, "result-table")
    labels = browser.evaluate("[...document.querySelectorAll('figure')].map(e => e.getAttribute('aria-label'))")
    assert f"{first}: eval" in labels[0]
    assert f"{second}: train" in labels[0]
    assert "Nothing." in texts(browser, "#settings p")
