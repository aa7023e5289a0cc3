"""Headless Chromium by its driver's protocol (WebDriver), with the standard library alone."""

import base64
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "needs Debian's packages chromium and chromium-driver"


class Browser:
    """A session of the driver.

    Args:
      address: of the session.
    """

    def __init__(self, address: str):
        self.address = address

    def call(self, method: str, path: str, body=None):
        """Returns the value that the driver answers with."""
        return request(method, f"{self.address}/{path}", body)

    def open(self, path: pathlib.Path) -> int:
        """Opens a page and waits until it is ready; returns the milliseconds that it took."""
        self.call("POST", "url", {"url": path.resolve().as_uri()})
        return self.ready()

    def ready(self) -> int:
        """Waits until the page is ready; returns the milliseconds that it took."""
        for _ in range(300):
            if text := self.run("return document.documentElement.dataset.ready"):
                return int(text)
            time.sleep(0.05)
        raise AssertionError(f"the page is not ready: {self.errors()}")

    def run(self, script: str, *arguments):
        """Returns what a script returns; a promise is awaited."""
        return self.call("POST", "execute/sync", {"script": script, "args": list(arguments)})

    def settle(self) -> None:
        """Waits for timers of the page and for its charts."""
        self.run("return new Promise((done) => setTimeout(done, 250)).then(() => window.fedwin.done()).then(() => 1)")

    def errors(self) -> list[str]:
        """Returns the messages of the console since the last call, and those of the page's policy."""
        return [entry["message"] for entry in self.call("POST", "se/log", {"type": "browser"})]

    def size(self, width: int, height: int) -> None:
        """Sets the size of the page."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def scheme(self, name: str) -> None:
        """Sets the preferred color scheme, light or dark."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def command(self, name: str, **parameters):
        """Sends a command of the browser's own protocol."""
        return self.call("POST", "goog/cdp/execute", {"cmd": name, "params": parameters})

    def screenshot(self, path: pathlib.Path) -> bytes:
        """Writes a picture of the whole page."""
        answer = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
        return path.read_bytes()


def request(method: str, url: str, body=None):
    """Returns the value that the driver answers with."""
    data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()[:2000]) from error


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Starts the driver and a browser without a window and without a network."""
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with tempfile.TemporaryDirectory() as profile:
        try:
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            arguments = [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                f"--user-data-dir={profile}", "--proxy-server=127.0.0.1:9", "--no-first-run", "--hide-scrollbars",
            ]  # fmt: skip
            options = {"binary": CHROMIUM, "args": arguments}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            root = f"http://127.0.0.1:{port}/session"
            session = request("POST", root, {"capabilities": {"alwaysMatch": wanted}})
            yield Browser(f"{root}/{session['sessionId']}")
            request("DELETE", f"{root}/{session['sessionId']}")
        finally:
            driver.terminate()
            driver.wait(30)
