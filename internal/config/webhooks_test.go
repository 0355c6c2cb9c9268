package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
)

func TestWebhooks(t *testing.T) {
	want := Webhooks{
		{URL: "https://a.example/x?y=1", SecretFile: "/etc/holdfast/a", Events: []holdfast.EventType{"approval.asked", "turn.failed"}},
		{URL: "http://127.0.0.1:9", SecretFile: "/b", Events: []holdfast.EventType{"session.ended"}},
	}
	file := write(t, `
webhooks:
  - url: https://a.example/x?y=1
    secret_file: /etc/holdfast/a
    events: [approval.asked, turn.failed]
  - {url: "http://127.0.0.1:9", secret_file: /b, events: [session.ended]}
`)
	got, err := Load(Source{File: file, Getenv: lookup("HOME", "/h")})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got.Webhooks); d != "" {
		t.Fatal(d)
	}
}

func TestWebhookRefusals(t *testing.T) {
	const good = `"url":"https://a.example","secret_file":"/s","events":["turn.failed"]`
	for text, want := range map[string]string{
		`x`:                         "write a list",
		`{}`:                        "write a list",
		`["x"]`:                     "webhooks[0] is not a map",
		`[{}]`:                      "webhooks[0].",
		`[{` + good + `,"URL":""}]`: "webhooks[0].URL is not a key",
		`[{` + good + `,"secret":"hunter2hunter2"}]`:                                     "webhooks[0].secret is not a key",
		`[{"url":7,"secret_file":"/s","events":["turn.failed"]}]`:                        "webhooks[0].url",
		`[{"url":"/x","secret_file":"/s","events":["turn.failed"]}]`:                     "webhooks[0].url",
		`[{"url":"ftp://a","secret_file":"/s","events":["turn.failed"]}]`:                "webhooks[0].url",
		`[{"url":"http://u:p@a","secret_file":"/s","events":["turn.failed"]}]`:           "webhooks[0].url",
		`[{"url":"http://","secret_file":"/s","events":["turn.failed"]}]`:                "webhooks[0].url",
		`[{"url":"http://a","secret_file":"s","events":["turn.failed"]}]`:                "webhooks[0].secret_file",
		`[{"url":"http://a","secret_file":"","events":["turn.failed"]}]`:                 "webhooks[0].secret_file",
		`[{"url":"http://a","secret_file":"/s","events":[]}]`:                            "webhooks[0].events is empty",
		`[{"url":"http://a","secret_file":"/s","events":null}]`:                          "webhooks[0].events is empty",
		`[{"url":"http://a","secret_file":"/s","events":"turn.failed"}]`:                 "webhooks[0].events",
		`[{"url":"http://a","secret_file":"/s","events":["turn.fail"]}]`:                 `webhooks[0].events[0]: "turn.fail"`,
		`[{"url":"http://a","secret_file":"/s","events":["text.delta"]}]`:                `"text.delta"`,
		`[{"url":"http://a","secret_file":"/s","events":["turn.failed","turn.failed"]}]`: "twice",
		`[{` + good + `},{` + good + `}]`:                                                "webhooks[1].url is also the url of another webhook",
		`[` + strings.Repeat(`{},`, 16) + `{}]`:                                          "17 webhooks",
	} {
		_, err := Load(Source{File: write(t, "webhooks: "+text), Getenv: lookup("HOME", "/h")})
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "webhooks") {
			t.Errorf("%s: %v", text, err)
		}
		if strings.Contains(err.Error()+holdfast.HintOf(err), "hunter2") {
			t.Errorf("%s: the error tells the secret: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"webhooks: yes": "write a list", "webhooks:\n  url: x": "write a list", "webhooks:\n  - x": "webhooks[0] is not a map",
		"webhooks:\n  - url: https://a\n    secret: hunter2": "webhooks[0].secret is not a key",
	} {
		_, err := Load(Source{File: write(t, text), Getenv: lookup("HOME", "/h")})
		if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
