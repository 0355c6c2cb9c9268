package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/double"
)

// TestDoubleServesAndRecords: one line with the URL when it is ready, a record
// without the key, and a good end when it is told to stop.
func TestDoubleServesAndRecords(t *testing.T) {
	record := filepath.Join(t.TempDir(), "requests")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"double", "messages-api", "--json", "--record", record}, func(string) string { return "" }, strings.NewReader(""), w, io.Discard)
		_ = w.Close()
		ended <- code
	}()
	var ready struct{ URL string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &ready) != nil {
		t.Fatalf("%q %v", line, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ready.URL+"/v1/messages",
		strings.NewReader(`{"model": "double-1", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {"sk-canary"}, "Anthropic-Version": {"2023-06-01"}}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(said), `The first was: \"hello\".`) {
		t.Fatalf("%d %s", resp.StatusCode, said)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Fatalf("exit code %d", code)
	}
	raw, err := os.ReadFile(record)
	if err != nil || strings.Contains(string(raw), "canary") {
		t.Fatalf("%v %s", err, raw)
	}
	var got double.Request
	if err := json.Unmarshal(raw, &got); err != nil || got.Roles[0] != "user" { // two records would not decode
		t.Fatalf("%v %s", err, raw)
	}
}
