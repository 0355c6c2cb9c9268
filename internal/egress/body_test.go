package egress_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/egress"
)

// refusals are requests that would make the provider reach out, run something or
// name what is the account's, each with what the refusal says and the grant that lets
// it pass; "" is never.
var refusals = []struct {
	name, path, body, says string
	grant                  egress.Grant
}{
	{"web search", "/v1/messages", with(`"tools":[{"type":"web_search_20250305","name":"web_search"}]`), "web_search_20250305", "web_search"},
	{"web search of another date", "/v1/messages", with(`"tools":[{"type":"web_search_20991231","name":"web_search"}]`), "does not allow boxes", "web_search"},
	{"web fetch among harmless ones", "/v1/messages", with(`"tools":[{"name":"a","input_schema":{}},{"type":"web_fetch_20250910","name":"web_fetch"}]`), "web_fetch", "web_fetch"},
	{"code execution", "/v1/messages", with(`"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`), "code_execution", "code_execution"},
	{"bash of the provider", "/v1/messages", with(`"tools":[{"type":"bash_20250124","name":"bash"}]`), "bash_20250124", "bash"},
	{"text editor", "/v1/messages", with(`"tools":[{"type":"text_editor_20250728","name":"x"}]`), "text_editor", "text_editor"},
	{"computer", "/v1/messages", with(`"tools":[{"type":"computer_20250124","name":"computer"}]`), "computer", "computer"},
	{"an unknown server tool", "/v1/messages", with(`"tools":[{"type":"teleport","name":"t"}]`), "teleport", "teleport"},
	{"a tool type that is no text", "/v1/messages", with(`"tools":[{"type":["web_search"],"name":"t"}]`), "not a string", ""},
	{"an unknown member of a tool", "/v1/messages", with(`"tools":[{"name":"t","fetch":"http://x"}]`), "fetch", "field:fetch"},
	{"tools called by code", "/v1/messages", with(`"tools":[{"name":"t","allowed_callers":["code_execution_20250825"]}]`), "allowed_callers", "code_execution"},
	{"tools that are no list", "/v1/messages", with(`"tools":{"type":"web_search_20250305"}`), "not a JSON array", ""},
	{"mcp servers", "/v1/messages", with(`"mcp_servers":[{"type":"url","url":"https://evil.example","name":"x"}]`), "mcp_servers", egress.GrantMCP},
	{"mcp servers by an escaped name", "/v1/messages", with(`"\u006dcp_servers":[{"type":"url","url":"https://evil.example"}]`), "mcp_servers", egress.GrantMCP},
	{"a container", "/v1/messages", with(`"container":"container_x"`), "container", egress.GrantContainer},
	{"a tier that costs more", "/v1/messages", with(`"service_tier":"priority"`), "service_tier", ""},
	{"an unknown field", "/v1/messages", with(`"speed":"fast"`), "speed", "field:speed"},
	{"a field in another spelling", "/v1/messages", with(`"Tools":[{"type":"web_search_20250305"}]`), "Tools", ""},
	{"tools twice, harmless last", "/v1/messages", with(`"tools":[{"type":"web_search_20250305"}],"tools":[]`), "twice", ""},
	{"a type twice", "/v1/messages", with(`"tools":[{"type":"web_search_20250305","name":"x","type":"custom"}]`), "twice", ""},
	{"an image by address", "/v1/messages", saying(`[{"type":"image","source":{"type":"url","url":"http://169.254.169.254/"}}]`), "url", egress.GrantURLs},
	{"a document by address", "/v1/messages", saying(`[{"type":"document","source":{"type":"url","url":"http://x/"}}]`), "url", egress.GrantURLs},
	{"a document by address in a result", "/v1/messages", saying(`[{"type":"tool_result","tool_use_id":"a","content":[{"type":"document","source":{"type":"url","url":"http://x/"}}]}]`), "url", egress.GrantURLs},
	{"an image in a document's content", "/v1/messages", saying(`[{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"http://x/"}}]}}]`), "url", egress.GrantURLs},
	{"a file of the account", "/v1/messages", saying(`[{"type":"document","source":{"type":"file","file_id":"file_1"}}]`), "file", egress.GrantFiles},
	{"an upload", "/v1/messages", saying(`[{"type":"container_upload","file_id":"file_1"}]`), "container_upload", egress.GrantFiles},
	{"a source of an unknown type", "/v1/messages", saying(`[{"type":"image","source":{"type":"s3","uri":"s3://x"}}]`), "not on the list", ""},
	{"an unknown block", "/v1/messages", saying(`[{"type":"wormhole"}]`), "wormhole", ""},
	{"a server tool's use", "/v1/messages", saying(`[{"type":"server_tool_use","id":"a","name":"web_search","input":{}}]`), "server_tool_use", "web_search"},
	{"an mcp tool's use", "/v1/messages", saying(`[{"type":"mcp_tool_use","id":"a","name":"x","server_name":"y","input":{}}]`), "mcp_tool_use", egress.GrantMCP},
	{"results in results in results", "/v1/messages", saying(`[{"type":"tool_result","content":[{"type":"tool_result","content":[{"type":"tool_result","content":[{"type":"text","text":"x"}]}]}]}]`), "too deep", ""},
	{"a system image", "/v1/messages", with(`"system":[{"type":"image","source":{"type":"url","url":"http://x/"}}]`), "not a block of type text", ""},
	{"no model", "/v1/messages", `{"max_tokens":1,"messages":[]}`, "names no model", ""},
	{"no number of tokens", "/v1/messages", `{"model":"m","max_tokens":"many","messages":[]}`, "max_tokens", ""},
	{"fewer than no tokens", "/v1/messages", `{"model":"m","max_tokens":-9999999,"messages":[]}`, "max_tokens", ""},
	{"a stream that is a text", "/v1/messages", `{"model":"m","max_tokens":1,"stream":"true","messages":[]}`, "stream", ""},
	{"no JSON", "/v1/messages", `{"model":`, "not valid JSON", ""},
	{"two documents", "/v1/messages", with(``) + with(`"mcp_servers":[]`), "not valid JSON", ""},
	{"a list", "/v1/messages", `[` + with(``) + `]`, "not a JSON object", ""},
	{"counting with mcp servers", "/v1/messages/count_tokens", with(`"mcp_servers":[{"type":"url"}]`), "mcp_servers", egress.GrantMCP},

	{"chat: search options", "/v1/chat/completions", with(`"web_search_options":{}`), "web_search_options", "field:web_search_options"},
	{"chat: many answers", "/v1/chat/completions", with(`"n":100`), "n may only be", ""},
	{"chat: kept by the account", "/v1/chat/completions", with(`"store":true`), "store", ""},
	{"chat: a tier that costs more", "/v1/chat/completions", with(`"service_tier":"priority"`), "service_tier", ""},
	{"chat: a server tool", "/v1/chat/completions", with(`"tools":[{"type":"web_search"}]`), "web_search", "web_search"},
	{"chat: an image by address", "/v1/chat/completions", saying(`[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]`), "with a URL", egress.GrantURLs},
	{"chat: a file of the account", "/v1/chat/completions", saying(`[{"type":"file","file":{"file_id":"file-1"}}]`), "file", egress.GrantFiles},
	{"chat: a stream that is not counted", "/v1/chat/completions", with(`"stream":true,"stream_options":{"include_usage":false}`), "include_usage", ""},
}

// with is a request with more members; saying is one whose user says content.
func with(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hello"}]` + more + `}`
}

func saying(content string) string {
	return fmt.Sprintf(`{"model":"m","max_tokens":10,"messages":[{"role":"user","content":%s}]}`, content)
}

func modelOf(path string) string {
	if strings.Contains(path, "chat") {
		return "openai/m"
	}
	return "anthropic/m"
}

// TestHZ7_WhatReachesOutIsRefused: nothing of it leaves the server, the client is told
// why and not to try again; with its grant it goes.
func TestHZ7_WhatReachesOutIsRefused(t *testing.T) {
	out := make(chan string, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out <- r.URL.Path
		_, _ = w.Write([]byte(`{"usage":{"input_tokens":1,"output_tokens":1}}`))
	}))
	t.Cleanup(front.Close)
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			r := broker(t, newTurn(modelOf(tc.path)), front.URL, nil)
			status, h, body := r.post(tc.path, tc.body)
			var doc struct{ Error struct{ Message string } }
			if err := json.Unmarshal([]byte(body), &doc); err != nil || status != 400 || !strings.Contains(doc.Error.Message, tc.says) || h.Get("X-Should-Retry") != "false" {
				t.Errorf("%d %s", status, body)
			}
			select {
			case path := <-out:
				t.Fatalf("it went out to %s", path)
			default:
			}
			if tc.grant == "" {
				return
			}
			if _, err := egress.ParseGrant(string(tc.grant)); err != nil {
				t.Error(err)
			}
			r = broker(t, newTurn(modelOf(tc.path)), front.URL, func(c *egress.BrokerConfig) { c.Grants = []egress.Grant{tc.grant} })
			if status, _, body := r.post(tc.path, tc.body); status != 200 {
				t.Errorf("granted: %d %s", status, body)
			}
			<-out
		})
	}
}

// What clients send passes, and reaches the provider byte for byte.
func TestHarmlessRequestsPassAsTheyCame(t *testing.T) {
	got := make(chan string, 1)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b strings.Builder
		_, _ = fmt.Fprint(&b, readAll(r))
		got <- b.String()
		_, _ = w.Write([]byte(`{"usage":{"input_tokens":3,"output_tokens":4,"prompt_tokens":5,"completion_tokens":6}}`))
	}))
	t.Cleanup(front.Close)
	for _, tc := range []struct{ path, body, want string }{
		{"/v1/messages", ` { "model" : "m" , "max_tokens":1,"messages" : [ ] } `, ""},
		{"/v1/messages", with(`"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],"thinking":{"type":"adaptive"},"context_management":{"edits":[]},"output_config":{"effort":"high"},"metadata":{"user_id":"u"},"tool_choice":{"type":"auto"},"temperature":1,"stop_sequences":[],"service_tier":"auto","mcp_servers":null`), ""},
		{"/v1/messages", saying(`[{"type":"text","text":"\"tools\":[{\"type\":\"web_search\"}]"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"x"}},{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"type":"tool_reference","tool_name":"x"}]},{"type":"tool_use","id":"a","name":"b","input":{"type":"url","source":{"type":"url"}}}]`), ""},
		{"/v1/messages", with(`"tools":[{"name":"web_search","description":"of the client","input_schema":{"type":"object","properties":{"type":{"type":"string"}}},"cache_control":{"type":"ephemeral"}},{"type":"custom","name":"b","input_schema":{},"defer_loading":true,"strict":true}]`), ""},
		{"/v1/chat/completions", with(`"n":1,"tools":[{"type":"function","function":{"name":"a"}}]`), ""},
		{"/v1/chat/completions", saying(`[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:image/png;base64,x"}}]`), ""},
		{"/v1/chat/completions", `{"stream":true,"model":"m","messages":[]}`, `{"stream_options":{"include_usage":true},"stream":true,"model":"m","messages":[]}`},
		{"/v1/chat/completions", `{"stream":true,"model":"m", "stream_options" : { }, "messages":[]}`, `{"stream":true,"model":"m", "stream_options" : {"include_usage":true }, "messages":[]}`},
		{"/v1/chat/completions", `{"stream_options":{"x":1},"stream":true,"model":"m","messages":[]}`, `{"stream_options":{"include_usage":true,"x":1},"stream":true,"model":"m","messages":[]}`},
		{"/v1/chat/completions", `{"stream_options":{"include_usage":true},"stream":true,"model":"m","messages":[]}`, ""},
	} {
		turn := newTurn(modelOf(tc.path))
		r := broker(t, turn, front.URL, nil)
		status, _, body := r.post(tc.path, tc.body)
		if status != 200 {
			t.Errorf("%s: %d %s", tc.body, status, body)
			continue
		}
		want := tc.want
		if want == "" {
			want = tc.body
		}
		if sent := <-got; sent != want {
			t.Errorf("%s\nwas sent as %s", want, sent)
		}
		u := turn.recorded()[0].Usage
		if want := map[bool]holdfast.Usage{false: {InputTokens: 3, OutputTokens: 4}, true: {InputTokens: 5, OutputTokens: 6}}[strings.Contains(tc.path, "chat")]; u.InputTokens != want.InputTokens || u.OutputTokens != want.OutputTokens {
			t.Errorf("%s: counted as %+v", tc.path, u)
		}
	}
}

func TestGrantsAreNames(t *testing.T) {
	for _, s := range []string{"", "Web_Search", "web search", "field:", "field:a b", strings.Repeat("a", 65), "a,b"} {
		if g, err := egress.ParseGrant(s); !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%q: %q %v", s, g, err)
		}
	}
}
