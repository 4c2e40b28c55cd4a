"""Transcripts that try to act on the page that shows them."""

from pathlib import Path

from tests.logs import CLAUDE, Record, claude_answer, claude_call, claude_result, claude_user, lines, session_id

ELSEWHERE = "https://elsewhere.invalid"
_ACT = "window.hacked=1;alert(1)"
PAYLOADS = (
    f"<script>{_ACT}</script>",
    f"</pre></div></details><script>{_ACT}</script>",
    f"</style><script>{_ACT}</script>",
    f"</title><script>{_ACT}</script>",
    f"</textarea><script>{_ACT}</script>",
    f"<img src=x onerror='{_ACT}'>",
    f"<img src={ELSEWHERE}/a.png>",
    f"![picture]({ELSEWHERE}/b.png)",
    f"![p][r]\n\n[r]: {ELSEWHERE}/c.png",
    f"<svg onload='{_ACT}'>",
    f"<svg><script>{_ACT}</script></svg>",
    f"<svg><use href='{ELSEWHERE}/d.svg#x'/></svg>",
    f"<math><mtext><table><mglyph><style><img src=x onerror='{_ACT}'></style></mglyph></table></mtext></math>",
    f"<iframe srcdoc='<script>parent.{_ACT}</script>'></iframe>",
    f"<iframe src='{ELSEWHERE}'></iframe>",
    f"<object data='{ELSEWHERE}/e'></object><embed src='{ELSEWHERE}/f'>",
    f"<link rel=stylesheet href={ELSEWHERE}/g.css>",
    f"<style>@import url({ELSEWHERE}/h.css); body{{background:url({ELSEWHERE}/i.png)}}</style>",
    f"<p style='background:url({ELSEWHERE}/j.png)'>x</p>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    f"<base href='{ELSEWHERE}/'>",
    f"<form action='{ELSEWHERE}' id=f><input name=q value=1></form><script>f.submit()</script>",
    f"[x](javascript:{_ACT.replace(';', '%3B')})",
    f"[x](\x01javascript:{_ACT})",
    f"[x](java\nscript:{_ACT})",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    f"<a href='vbscript:{_ACT}'>x</a>",
    f"<a href='javascript:{_ACT}' autofocus onfocus='{_ACT}'>x</a>",
    f"<details open ontoggle='{_ACT}'>x</details>",
    f"<input autofocus onfocus='{_ACT}'>",
    f"<video src={ELSEWHERE}/k.mp4 autoplay onerror='{_ACT}'></video>",
    f"<audio src={ELSEWHERE}/l.mp3 autoplay></audio>",
    f"<div hx-get='{ELSEWHERE}' hx-trigger='load'>x</div>",
    f"<div data-hx-get='{ELSEWHERE}' data-hx-trigger='load'>x</div>",
    f"<div hx-on:load='{_ACT}' hx-on--load='{_ACT}'>x</div>",
    f"<details data-load='{ELSEWHERE}' open>x</details>",
    f"```html\n<script>{_ACT}</script>\n```",
    f'```"><script>{_ACT}</script>\nx\n```',
    f"```x onmouseover={_ACT}\nx\n```",
    f"<!--<img title=\"--><img src=x onerror='{_ACT}'>\">",
    f"<noscript><p title=\"</noscript><img src=x onerror='{_ACT}'>\">",
    f"<template><script>{_ACT}</script></template>",
    f"{{{{ ''.__class__ }}}} {{% for x in y %}} <% {_ACT} %> ${{{_ACT}}}",
    f"\"'><script>{_ACT}</script>",
    f"' autofocus onfocus='{_ACT}' x='",
    f"\x1b]8;;{ELSEWHERE}\x07link\x1b]8;;\x07\x1b[2J",
    "\u202etxt.exe\u202c \u2066admin\u2069 \ufeff \u200b",
    f"&lt;script&gt;{_ACT}&lt;/script&gt; &#60;script&#62;{_ACT}&#60;/script&#62;",
    f"<xmp><script>{_ACT}</script></xmp><plaintext>",
    f"| a |\n|---|\n| <img src=x onerror='{_ACT}'> ![p]({ELSEWHERE}/m.png) |",
)


def hostile_home(root: Path) -> Path:
    """A home with a session for each payload, which is in every text that its log has."""
    for number, payload in enumerate(PAYLOADS):
        CLAUDE.write(root, lines(_session(session_id(number), payload)), session_id(number))
    return root


def _session(session: str, payload: str) -> list[Record]:
    edit = claude_call(session, 4, payload)
    edit["message"]["content"][0] |= {
        "name": "Edit",
        "input": {"file_path": f"/tmp/{payload}.py", "old_string": "a", "new_string": payload},
    }
    other = claude_call(session, 6, payload)
    other["message"]["content"][0] |= {"name": payload[:60], "input": {payload: payload}}
    records = [
        claude_user(session, 1, payload),
        claude_call(session, 2, payload),
        claude_result(session, 3, payload),
        edit,
        claude_result(session, 5, payload),
        other,
        claude_result(session, 7, payload),
        claude_answer(session, 8, payload),
        {"type": "summary", "summary": payload, "leafUuid": "x"},
    ]
    for record in records[:-1]:
        record |= {"cwd": f"/tmp/{payload}", "gitBranch": payload}
        if "model" in record["message"]:
            record["message"]["model"] = payload
    return records
