package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// fakeAudit exports two lines, then fails as it is told.
type fakeAudit struct{ err error }

func (f fakeAudit) Head(context.Context) (holdfast.AuditHead, error) {
	return holdfast.AuditHead{Chain: 7, N: 2, Hash: strings.Repeat("0a", 32)}, f.err
}

func (f fakeAudit) Export(_ context.Context, after string) (func(context.Context, io.Writer) error, error) {
	if after != "7:2" {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "audit.export", "%s is not a record", after)
	}
	return func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, "{\"audit\":2}\n{\"n\":1}\n")
		return errors.Join(err, f.err)
	}, nil
}

func TestAuditRoutes(t *testing.T) {
	_, srv := start(t, nil)
	resp, data := do(t, srv, request{"GET", "/v1/audit?after=7:2", "", nil})
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/jsonl" || string(data) != "{\"audit\":2}\n{\"n\":1}\n" {
		t.Errorf("%d %s %q", resp.StatusCode, resp.Header.Get("Content-Type"), data)
	}
	for _, after := range []string{"7:3"} {
		if resp, data = do(t, srv, request{"GET", "/v1/audit?after=" + after, "", nil}); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("after %s: %d %s", after, resp.StatusCode, data)
		}
	}
	if resp, data = do(t, srv, request{"GET", "/v1/audit/head", "", nil}); resp.StatusCode != http.StatusOK || !strings.Contains(string(data), `"chain":7,"n":2`) {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	_, secret := newKey(t, srv, `{"name":"ci","scopes":["write"]}`)
	for _, path := range []string{"/v1/audit", "/v1/audit/head"} {
		if resp, data = do(t, srv, request{"GET", path, "", bearer(secret)}); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s with a key that may write: %d %s", path, resp.StatusCode, data)
		}
	}
}

// TestABrokenExportIsABrokenAnswer: what could not be written does not look whole.
func TestABrokenExportIsABrokenAnswer(t *testing.T) {
	_, srv := start(t, func(cfg *Config) {
		cfg.Audit = fakeAudit{holdfast.Errorf(holdfast.KindUnavailable, "store", "the disk is gone")}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/audit?after=7:2", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = bearer(testToken)
	resp, err := srv.Client().Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("the answer looks whole")
	}
}
