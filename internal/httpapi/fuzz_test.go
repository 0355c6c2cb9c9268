package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// FuzzRequest sends any body and query to routes that decode them: the answer is
// never a 5xx, and what the strict decoder refuses never gets through.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"title":"a","tags":["b"],"env":{"A":"1"}}`, `{"title":"a","title":"b"}`, `{"title":"\ud83d"}`, "{\"title\":\"\xff\"}", `[]`, `null`, `{"a":`,
		strings.Repeat("[", 100), `{"title":1e999}`, `{"budget":{}}`, "\ufeff{}", `{"text":"x","mode":"steer"}`, `{"argv":["a"],"timeout_ms":1}`,
	} {
		f.Add(uint8(0), s, "")
		f.Add(uint8(1), s, "limit=1")
	}
	for _, q := range []string{"limit=1&cursor=AAAA", "after=-1", "%zz", "a;b", "type=turn.completed,", "limit=%00"} {
		f.Add(uint8(2), "", q)
	}
	a, strict := New(newFake().config()), body.JSON()
	const one = "/v1/sessions/01890a5d-ac96-774b-bcce-b302099a8057"
	targets := []string{
		"POST /v1/sessions", "PATCH " + one, "GET " + one + "/events", "POST " + one + "/turns", "POST " + one + "/exec", "POST /v1/keys",
		"POST " + one + "/end", "GET /v1/sessions", "POST /v1/containers/stop",
	}
	f.Fuzz(func(t *testing.T, which uint8, sent, query string) {
		method, path, _ := strings.Cut(targets[int(which)%len(targets)], " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, strings.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer "+testToken)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s %s?%q %q: %d %s", method, path, query, sent, w.Code, w.Body)
		}
		if w.Code >= 400 && (w.Header().Get("Content-Type") != problem.MediaType || !json.Valid(w.Body.Bytes())) {
			t.Fatalf("%d is no problem: %s", w.Code, w.Body)
		}
		var v any
		err = strict.Unmarshal([]byte(sent), &v)
		if err != nil && method != "GET" && sent != "" && w.Code < 400 {
			t.Fatalf("%s %s took %q: %v", method, path, sent, err)
		}
		if err != nil {
			return
		}
		var std any
		if uerr := json.Unmarshal([]byte(sent), &std); uerr != nil || !utf8.ValidString(sent) {
			t.Fatalf("the decoder took %q, the standard one says %v", sent, uerr)
		}
		ours, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := json.Marshal(std)
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Fatalf("%q is %s here and %s there (%v)", sent, ours, theirs, err)
		}
	})
}
