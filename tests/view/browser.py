"""Headless Chromium and Firefox with one interface: pages, scripts, mouse, keys, pictures and prints.

Chromium is controlled by chromedriver. Firefox speaks Marionette, a WebDriver over TCP, itself.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

CHROMIUM = ["--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--enable-unsafe-swiftshader", "--window-size=1280,1000"]
# Firefox's own requests, its update checks among them, are switched off.
PREFERENCES = {"app.update.disabledForTesting": True, "browser.shell.checkDefaultBrowser": False,
               "browser.startup.page": 0, "datareporting.policy.dataSubmissionEnabled": False,
               "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
               "browser.safebrowsing.malware.enabled": False, "browser.safebrowsing.phishing.enabled": False,
               "services.settings.server": "data:,#remote-settings-dummy/v1", "extensions.update.enabled": False,
               "toolkit.telemetry.enabled": False, "browser.newtabpage.enabled": False, "app.normandy.enabled": False,
               "webgl.force-enabled": True, "focusmanager.testmode": True, "remote.log.level": "Error"}
KEYS = {"ArrowUp": "\ue013", "ArrowDown": "\ue015", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Home": "\ue011",
        "End": "\ue010", "Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", " ": " "}


class Browser:
    def run(self, script, *arguments):
        """The result of the body of a function, or of the promise that it returns."""
        raise NotImplementedError

    def open(self, path, fragment="", ready="yes"):
        """Opens a page; returns seconds until it can be used."""
        self.visit("about:blank")
        start = time.monotonic()
        self.visit(f"file://{path}{fragment}")
        self.wait(f"return document.body.dataset.ready === '{ready}'")
        return time.monotonic() - start

    def wait(self, script, seconds=30):
        end = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > end:
                raise TimeoutError(script)
            time.sleep(0.01)

    def text(self, name):
        time.sleep(0.08)  # a frame or two
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def box(self, selector):
        """left, top, width, height in the window."""
        return self.run("const b = document.querySelector(arguments[0]).getBoundingClientRect();"
                        "return [b.left, b.top, b.width, b.height]", selector)

    def move(self, x, y, click=False, drag=None):
        """Moves the mouse; then clicks, or drags to another point."""
        steps = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}]
        if click or drag:
            steps.append({"type": "pointerDown", "button": 0})
        if drag:
            steps.append({"type": "pointerMove", "duration": 50, "x": round(drag[0]), "y": round(drag[1])})
        if click or drag:
            steps.append({"type": "pointerUp", "button": 0})
        self.actions([{"type": "pointer", "id": "mouse", "actions": steps}])
        time.sleep(0.08)

    def swipe(self, x, y, right, down, rest=0):
        """Moves a finger in steps, after a rest of so many milliseconds."""
        steps = [{"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}, {"type": "pointerDown", "button": 0},
                 {"type": "pause", "duration": rest}]
        steps += [{"type": "pointerMove", "duration": 20, "x": round(x + right * k / 20), "y": round(y + down * k / 20)}
                  for k in range(1, 21)]
        steps.append({"type": "pointerUp", "button": 0})
        self.actions([{"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}, "actions": steps}])
        time.sleep(0.3)

    def press(self, *keys):
        steps = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self.actions([{"type": "key", "id": "keys", "actions": steps}])
        time.sleep(0.05)


class Chromium(Browser):
    name = "chromium"

    def __init__(self):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
        self.folder = tempfile.mkdtemp()
        options = webdriver.ChromeOptions()
        for argument in CHROMIUM + [f"--user-data-dir={self.folder}"]:
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(300)
        self.pid = self.driver.service.process.pid

    def visit(self, address):
        self.driver.get(address)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def actions(self, actions):
        self.driver.execute("actions", {"actions": actions})

    def size(self, width, height, ratio=1, dark=False, touch=False, forced=False):
        command = self.driver.execute_cdp_cmd
        command("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": ratio,
                                                       "mobile": touch})
        command("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "forced-colors", "value": "active" if forced else "none"}]})
        time.sleep(0.2)

    def picture(self):
        return self.driver.get_screenshot_as_png()

    def printed(self):
        """A PDF on A4."""
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {
            "paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True, "preferCSSPageSize": True})["data"])

    def enter(self, selector, number=0):
        """Scripts, mouse and keys are those of a frame, until leave()."""
        self.driver.switch_to.frame(self.driver.find_elements("css selector", selector)[number])

    def leave(self):
        self.driver.switch_to.default_content()

    @contextlib.contextmanager
    def tab(self):
        """A new tab, which is closed at the end."""
        first = self.driver.current_window_handle
        self.driver.switch_to.new_window("tab")
        try:
            yield
        finally:
            self.driver.close()
            self.driver.switch_to.window(first)

    def upload(self, selector, path):
        self.driver.find_elements("css selector", selector)[0].send_keys(str(path))

    def logs(self):
        """(console messages, requested URLs) since the last call."""
        console = [e["message"] for e in self.driver.get_log("browser") if "willReadFrequently" not in e["message"]]
        events = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        return console, [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.folder, ignore_errors=True)


class Firefox(Browser):
    name = "firefox"

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with open(f"{self.folder}/user.js", "w") as file:
            for key, value in {**PREFERENCES, "marionette.port": port}.items():
                file.write(f"user_pref({json.dumps(key)}, {json.dumps(value)});\n")
        self.process = subprocess.Popen(
            ["firefox-esr", "--marionette", "--remote-allow-system-access", "--headless", "--no-remote", "--profile", self.folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "MOZ_HEADLESS_WIDTH": "4200",
                                                                       "MOZ_HEADLESS_HEIGHT": "2400"})
        self.pid = self.process.pid
        end = time.monotonic() + 60
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.number = 0
        self.receive()
        self.command("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {"unhandledPromptBehavior": "accept"}}})
        self.command("WebDriver:SetTimeouts", {"script": 300000})

    def receive(self):
        """A message is its length in decimal, a colon, and JSON."""
        length = b""
        while not length.endswith(b":"):
            length += self.received(1)
        data, left = b"", int(length[:-1])
        while len(data) < left:
            data += self.received(left - len(data))
        return json.loads(data)

    def received(self, most):
        data = self.socket.recv(most)
        if not data:
            raise ConnectionError("Firefox has closed the connection")
        return data

    def command(self, name, parameters):
        self.number += 1
        message = json.dumps([0, self.number, name, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self.receive()
        assert number == self.number
        if error:
            raise RuntimeError(f"{name}: {error['message']}")
        return result.get("value", result) if isinstance(result, dict) else result

    def visit(self, address):
        self.command("WebDriver:Navigate", {"url": address})

    def run(self, script, *arguments):
        return self.command("WebDriver:ExecuteScript", {"script": script, "args": list(arguments), "sandbox": None})

    def actions(self, actions):
        self.command("WebDriver:PerformActions", {"actions": actions})

    def preference(self, name, value):
        self.command("Marionette:SetContext", {"value": "chrome"})
        kind = {str: "setCharPref", int: "setIntPref"}[type(value)]
        self.command("WebDriver:ExecuteScript", {"script": f"Services.prefs.{kind}(arguments[0], arguments[1])",
                                                 "args": [name, value]})
        self.command("Marionette:SetContext", {"value": "content"})

    def size(self, width, height, ratio=1, dark=False, touch=False, forced=False):
        self.preference("layout.css.devPixelsPerPx", str(ratio))
        self.preference("layout.css.prefers-color-scheme.content-override", 0 if dark else 1)
        time.sleep(0.3)
        for _ in range(3):  # the window has borders
            inner = self.run("return [innerWidth, innerHeight, outerWidth, outerHeight]")
            if inner[:2] == [width, height]:
                break
            self.command("WebDriver:SetWindowRect", {"width": inner[2] + width - inner[0],
                                                     "height": inner[3] + height - inner[1]})
            time.sleep(0.2)

    def picture(self):
        return base64.b64decode(self.command("WebDriver:TakeScreenshot", {"full": False}))

    def printed(self):
        return base64.b64decode(self.command("WebDriver:Print", {"page": {"width": 21.0, "height": 29.7}, "background": True}))

    def enter(self, selector, number=0):
        elements = self.command("WebDriver:FindElements", {"using": "css selector", "value": selector})
        self.command("WebDriver:SwitchToFrame", {"element": next(iter(elements[number].values()))})

    def leave(self):
        self.command("WebDriver:SwitchToFrame", {"id": None})

    @contextlib.contextmanager
    def tab(self):
        """A new tab, which is closed at the end."""
        first = self.command("WebDriver:GetWindowHandle", {})
        self.command("WebDriver:SwitchToWindow", {"handle": self.command("WebDriver:NewWindow", {"type": "tab"})["handle"]})
        try:
            yield
        finally:
            self.command("WebDriver:CloseWindow", {})
            self.command("WebDriver:SwitchToWindow", {"handle": first})

    def upload(self, selector, path):
        element = self.command("WebDriver:FindElement", {"using": "css selector", "value": selector})
        self.command("WebDriver:ElementSendKeys", {"id": next(iter(element.values())), "text": str(path)})

    def logs(self):
        """Resources of the page; Firefox does not report its console here."""
        return [], self.run("return performance.getEntriesByType('resource').map(entry => entry.name)")

    def close(self):
        try:
            self.command("Marionette:Quit", {"flags": ["eForceQuit"]})
        except (OSError, RuntimeError, ValueError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)
