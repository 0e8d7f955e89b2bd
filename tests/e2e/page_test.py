#!/usr/bin/env python3
"""The page at / in a headless Chromium: a question and its answer, stop, retry, settings, the key, keyboard, dark, phone width.

    tests/e2e/page_test.py build/release/app/quire [FOLDER for screenshots]
"""
import json
import pathlib
import re
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
            contract(browser, server, shots)
            check("neither script errors nor refused loads", not (seen := browser.complaints()), seen)
        key(browser, quire)
    print("ok")


main()
