package main

import (
	"testing"

	"github.com/holdfast-run/holdfast"
)

// FH-1.
func TestModelLine(t *testing.T) {
	own := holdfast.ModelProvider{Name: "anthropic", Host: "api.anthropic.com", Configured: true, Models: []string{"anthropic/a", "anthropic/b"}}
	mute := holdfast.ModelProvider{Name: "anthropic", Host: "api.anthropic.com", Configured: true, Error: "cannot reach api.anthropic.com: no such host"}
	ollama := holdfast.ModelProvider{Name: "openai", Host: "127.0.0.1:11434", Configured: true, Models: []string{"openai/llama3.2"}}
	for want, m := range map[string]holdfast.Models{
		"model: scripted, a test double: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run: holdfast secret set anthropic":                {Default: "scripted", Double: true},
		"model: openai/llama3.2 at 127.0.0.1:11434 (1 model)":                                                                           {Default: "openai/llama3.2", Providers: []holdfast.ModelProvider{own, ollama}},
		"model: anthropic/a at api.anthropic.com (2 models)":                                                                            {Default: "anthropic/a", Providers: []holdfast.ModelProvider{own}},
		"model: anthropic/c, which api.anthropic.com does not list (2 models): set default_model; holdfast models lists them":           {Default: "anthropic/c", Providers: []holdfast.ModelProvider{own}},
		"model: anthropic/a at api.anthropic.com, which does not say which models it has: cannot reach api.anthropic.com: no such host": {Default: "anthropic/a", Providers: []holdfast.ModelProvider{mute}},
		"model: none: openai at h has no model; ollama pull llama3.2":                                                                   {Error: "openai at h has no model", Hint: "ollama pull llama3.2"},
		"model: claude-x": {Default: "claude-x", Providers: []holdfast.ModelProvider{own}},
	} {
		if got := modelLine(m); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
