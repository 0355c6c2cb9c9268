package holdfast_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestPartsAsText: a part of a type that this version does not know is shown as such, never
// left out.
func TestPartsAsText(t *testing.T) {
	text := func(s string) holdfast.Part { return holdfast.Part{Type: holdfast.PartText, Text: s} }
	image := holdfast.Part{Type: "image", Text: "x"}
	for _, c := range []struct {
		parts        []holdfast.Part
		user, answer string
	}{
		{nil, "", ""},
		{[]holdfast.Part{text("a")}, "a", "a"},
		{[]holdfast.Part{text("a"), {Type: holdfast.PartToolUse, ToolUseID: "u"}, {Type: holdfast.PartThinking}, text("b")}, "a\n\nb", "ab"},
		{[]holdfast.Part{image}, `[a part of type "image"]`, `[a part of type "image"]`},
		{[]holdfast.Part{text("a "), image}, "a \n\n" + `[a part of type "image"]`, `a [a part of type "image"]`},
	} {
		if got := (holdfast.UserMessage{Parts: c.parts}).Text(); got != c.user {
			t.Errorf("%v of a user: %q", c.parts, got)
		}
		if got := (holdfast.AssistantMessage{Parts: c.parts}).Text(); got != c.answer {
			t.Errorf("%v of an answer: %q", c.parts, got)
		}
	}
}

// TestWholeMessages: a message is a text or a list of texts, and not both.
func TestWholeMessages(t *testing.T) {
	text := holdfast.Part{Type: holdfast.PartText, Text: "a"}
	for _, m := range []holdfast.SendMessage{{Text: "a"}, {Parts: []holdfast.Part{text}}} {
		got, err := m.Whole()
		if err != nil || got.Text != "a" || len(got.Parts) != 1 || got.Parts[0] != text {
			t.Errorf("%+v: %+v, %v", m, got, err)
		}
		if p := got.Plain(); p.Text != "a" || p.Parts != nil {
			t.Errorf("%+v plain: %+v", m, p)
		}
	}
	for want, m := range map[string]holdfast.SendMessage{
		`text " \n" is empty`:                         {Text: " \n"},
		"text \"\" is empty":                          {Parts: []holdfast.Part{}},
		"both text and parts":                         {Text: "a", Parts: []holdfast.Part{text}},
		`part 2 of the message is of type "image"`:    {Parts: []holdfast.Part{text, {Type: "image"}}},
		`part 1 of the message is of type ""`:         {Parts: []holdfast.Part{{Text: "a"}}},
		`part 1 of the message is of type "tool_use"`: {Parts: []holdfast.Part{{Type: holdfast.PartToolUse, ToolUseID: "u"}}},
		`part 1 of the message is of type "text"`:     {Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "a", ToolUseID: "u"}}},
	} {
		_, err := m.Whole()
		if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, hint %q", m, err, holdfast.HintOf(err))
		}
	}
}
