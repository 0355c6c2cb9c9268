package native

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

func TestSystemPrompt(t *testing.T) {
	boxed := runtime.Turn{Session: holdfast.Session{Trust: holdfast.Untrusted}, Instructions: "Sing."}
	p := systemPrompt(boxed)
	if !strings.Contains(p, "/workspace") || !strings.HasSuffix(p, "Sing.") || p != systemPrompt(boxed) {
		t.Error(p)
	}
	p = systemPrompt(runtime.Turn{Session: holdfast.Session{Trust: holdfast.Trusted}})
	if strings.Contains(p, "/workspace") || !strings.Contains(p, "without a sandbox") || strings.Contains(p, "Instructions") {
		t.Error(p)
	}
}
