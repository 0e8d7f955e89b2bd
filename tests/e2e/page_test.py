#!/usr/bin/env python3
"""The page at / in a headless Chromium: a question and its answer, stop, retry, settings, the key, keyboard, dark, phone width.

    tests/e2e/page_test.py build/release/app/quire [FOLDER for screenshots]
"""
import json
import pathlib
import re
import socket
import sys
import tempfile

from browser import Browser
from serve_process import Server, check

TEXT = "[...document.querySelectorAll('#talk > li')].map(li => li.innerText).join('\\n---\\n')"
IDLE = "!document.querySelector('.busy') && !document.getElementById('send').hidden"


def ask(browser, question):
    browser.run("document.getElementById('question').focus()")
    browser.type(question)
    browser.press("Enter", text="\r")


def conversation(browser, server, shots):
    browser.size(1280, 800)
    browser.dark(False)
    browser.open(server.base + "/")
    browser.until("document.getElementById('model').value === 'm'")
    check("one may type at once", browser.run("document.activeElement.id") == "question")
    ask(browser, "What is 12 + 7?")
    browser.until(IDLE + " && document.querySelectorAll('#talk > li').length === 2")
    check("the answer is there", "12 + 7 = 19." in browser.run(TEXT), browser.run(TEXT))
    check("and its figures", re.search(r"\d+ in, \d+ out · first token [\d.]+ s", browser.run(TEXT)), browser.run(TEXT))
    ask(browser, "What is **3 + 4** `<img src=x onerror=alert(1)>`?")
    browser.until(IDLE + " && document.querySelectorAll('#talk > li').length === 4")
    check("text stays text", browser.run("document.querySelectorAll('#talk img, #talk script').length") == 0)
    browser.press("r", "KeyR", modifiers=1)
    browser.until(IDLE)
    check("a retry replaces the answer", browser.run("document.querySelectorAll('#talk > li').length") == 4)
    browser.until("document.getElementById('m-ttft').innerText.includes('ms')")
    browser.shot(shots / "page.png")
    browser.open(server.base + "/?again")
    check("a reload keeps the conversation", "12 + 7 = 19." in browser.run(TEXT))


def settings_and_stop(browser, shots):
    browser.press("s", "KeyS", modifiers=1)
    browser.until("!document.getElementById('settings').hidden")
    check("the keyboard is in the panel", browser.run("document.activeElement.name") == "system")
    for name, value in [("temperature", "0"), ("max_tokens", "3")]:
        browser.run(f"document.querySelector('[name={name}]').focus()")
        browser.type(value)
    browser.shot(shots / "settings.png")
    browser.press("n", "KeyN", modifiers=1)
    browser.until("document.querySelectorAll('#talk > li').length === 0")
    ask(browser, "Count from 1 to 20.")
    browser.until(IDLE + " && document.querySelectorAll('#talk > li').length === 2")
    check("max tokens was sent", "3 out" in browser.run(TEXT) and "cut off" in browser.run(TEXT), browser.run(TEXT))
    browser.run("document.querySelector('[name=temperature]').value = ''; document.querySelector('[name=max_tokens]').value = ''; "
                "document.querySelector('[name=tools]').focus()")
    browser.type("not JSON")
    check("a wrong list of tools is said", "Tools:" in browser.run("document.getElementById('controls-error').innerText"))
    browser.run("const t = document.querySelector('[name=tools]'); t.value = ''; t.dispatchEvent(new Event('input', {bubbles: true})); 0")
    browser.press("Escape")
    browser.until("document.getElementById('settings').hidden")


def stop(browser, server):
    """An endless answer, by a stop token that never comes; Esc ends it, and the server hears of it."""
    browser.run("const f = window.fetch; window.fetch = (path, o) => f(path, o?.body ? {...o, body: JSON.stringify({...JSON.parse(o.body), "
                "ignore_eos: true, max_tokens: 4000})} : o); 0")
    ask(browser, "Go on for ever.")
    browser.until("document.querySelector('.busy .text')?.innerText.length > 5")
    check("it is running", server.metric("vllm:num_requests_running") == 1)
    browser.press("Escape")
    browser.until(IDLE)
    check("what came is kept", "Stopped." in browser.run(TEXT), browser.run(TEXT))
    for _ in range(100):  # the engine hears of it within a step
        if server.metric("vllm:num_requests_running") == 0:
            return
        browser.run("new Promise(r => setTimeout(r, 50))")
    sys.exit("FAILED: the server goes on")


def looks(browser, shots):
    for name, width, height, dark, mobile in [("dark", 1280, 800, True, False), ("phone", 390, 780, False, True), ("phone-dark", 390, 780, True, True)]:
        browser.size(width, height, mobile)
        browser.dark(dark)
        browser.run("new Promise(r => setTimeout(r, 300))")
        check(f"{name}: nothing sticks out", browser.run("document.documentElement.scrollWidth") <= width)
        ink, paper = browser.run("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
        light = [sum(map(int, re.findall(r"\d+", c)[:3])) for c in (ink, paper)]
        check(f"{name}: {'light on dark' if dark else 'dark on light'}", (light[0] > light[1]) == dark, (ink, paper))
        browser.shot(shots / f"{name}.png")
    browser.size(1280, 800)
    browser.dark(False)


def parts(browser):
    """Reasoning and a call, as a server would stream them: the small model does neither."""
    browser.run("sessionStorage.setItem('quire-talk', JSON.stringify([{role: 'user', content: 'Weather?'}, {role: 'assistant', content: '', "
                "reasoning: 'They want the weather.', tool_calls: [{id: 'c1', type: 'function', function: {name: 'get_weather', "
                "arguments: '{\"city\": \"Bern\"}'}}]}])); location.reload()")
    browser.until("document.querySelector('.call form')")
    check("reasoning is folded away", browser.run("document.querySelector('details.thinking').open") is False)
    check("the call is shown", "calls get_weather" in browser.run(TEXT) and "Bern" in browser.run(TEXT))
    browser.run("document.querySelector('.call textarea').focus()")
    browser.type("rain")
    browser.run("document.querySelector('.call form').requestSubmit()")
    browser.until(IDLE + " && document.querySelectorAll('#talk > li').length === 4")
    check("the result went to the model", browser.run("document.querySelector('#talk > li.tool').innerText").endswith("rain"))


def key(browser, quire):
    with Server(quire, "models/quire-tiny", "--num-gpu-blocks-override", "1024", "--api-key", "sesame") as server:
        browser.open(server.base + "/")
        browser.until("document.getElementById('key-dialog').open")
        browser.type("wrong")
        browser.press("Enter", text="\r")
        browser.until("document.getElementById('key-error').innerText.includes('not accepted')")
        browser.complaints()  # the 401s
        browser.run("document.getElementById('key').focus()")
        browser.type("sesame")
        browser.press("Enter", text="\r")
        browser.until("document.getElementById('model').value === 'm' && !document.getElementById('key-dialog').open")
        ask(browser, "What is 12 + 7?")
        browser.until(IDLE + " && document.querySelectorAll('#talk > li').length === 2")
        check("with the key it answers", "19" in browser.run(TEXT))
        check("no complaint after it", not browser.complaints())


def inside(browser, server, shots):
    """Two requests run while one looks: who holds what, the plan, and what became of one of them."""
    address = server.base.removeprefix("http://").split(":")
    held = []
    for name, prompt, n in (("a-story", "one two three four " * 60, 1), ("two-answers", "What is 12 + 7? " * 90, 2)):
        body = json.dumps({"model": "m", "prompt": prompt, "n": n, "stream": True, "ignore_eos": True, "max_tokens": 5000}).encode()
        held.append(socket.create_connection((address[0], int(address[1]))))
        held[-1].sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: {name}\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    browser.size(1280, 1000)
    browser.open(server.base + "/?inside")
    browser.press("i", "KeyI", modifiers=1)
    text = "document.getElementById('inside').innerText"
    browser.until(f"{text}.includes('two-answers') && {text}.includes('a-story')")
    browser.until("/held [1-9]/.test(document.querySelector('.legend').innerText) && /shared [1-9]/.test(document.querySelector('.legend').innerText)")
    check("the plan stands there", "requests of 8,192" in browser.run(text) and "kv cache" in browser.run(text), browser.run(text))
    check("the map says what it shows", "1023 blocks" in browser.run("document.querySelector('.map canvas').getAttribute('aria-label')"))
    check("and has the colours of what is held", browser.run("(() => { const c = document.querySelector('.map canvas'); const d = c.getContext('2d')"
          ".getImageData(0, 0, c.width, c.height).data; const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(`${d[i]},${d[i+1]},${d[i+2]}`); "
          "return seen.size; })()") >= 3)
    check("one may not type there", browser.run("document.getElementById('ask').hidden"))
    browser.run("document.querySelector('#engines button[title=two-answers]').click()")
    browser.until("document.getElementById('timelines-title').innerText.includes('this request') && "
                  "document.getElementById('timelines').innerText.includes('joined the queue')")
    check("each choice has its timeline", browser.run("document.querySelectorAll('#timelines article').length") == 2)
    check("with the time it ran", browser.run("document.querySelectorAll('#timelines rect.runs').length") == 2)
    for name, width, height, dark, mobile in [("inside", 1280, 1000, False, False), ("inside-dark", 1280, 1000, True, False), ("inside-phone", 390, 780, False, True)]:
        browser.size(width, height, mobile)
        browser.dark(dark)
        browser.run("new Promise(r => setTimeout(r, 1300))")
        check(f"{name}: nothing sticks out", browser.run("document.documentElement.scrollWidth") <= width)
        browser.shot(shots / f"{name}.png")
    browser.size(1280, 800)
    browser.dark(False)
    for one in held:
        one.close()
    browser.until(f"!{text}.includes('Who holds what')")
    browser.press("i", "KeyI", modifiers=1)
    check("and back to the talk", browser.run("!document.getElementById('talking').hidden && document.getElementById('inside').hidden"))


def contract(browser, server, shots):
    browser.size(1280, 800)
    browser.open(server.base + "/docs")
    browser.until("document.querySelectorAll('#paths > details').length > 20")
    browser.run("[...document.querySelectorAll('summary')].find(s => s.innerText.includes('/v1/messages')).click()")
    check("a path shows its members", "stop_sequences" in browser.run("document.getElementById('paths').innerText"))
    browser.shot(shots / "docs.png")


def main():
    quire = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        shots = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else folder)
        with Server(quire, "models/quire-tiny", "--num-gpu-blocks-override", "1024") as server:
            conversation(browser, server, shots)
            settings_and_stop(browser, shots)
            looks(browser, shots)
            stop(browser, server)
            parts(browser)
            inside(browser, server, shots)
            contract(browser, server, shots)
            check("neither script errors nor refused loads", not (seen := browser.complaints()), seen)
        key(browser, quire)
    print("ok")


main()
