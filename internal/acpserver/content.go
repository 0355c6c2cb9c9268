package acpserver

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
)

// promptText returns a prompt of the editor as the text of a message: texts as they are,
// resources marked with their URIs.
func promptText(blocks []acp.ContentBlock) (string, error) {
	var parts []string
	for i, b := range blocks {
		switch {
		case b.Text != nil:
			parts = append(parts, b.Text.Text)
		case b.ResourceLink != nil:
			parts = append(parts, fmt.Sprintf("[%s](%s)", b.ResourceLink.Name, b.ResourceLink.Uri))
		case b.Resource != nil:
			text, err := resource(b.Resource.Resource)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		default:
			return "", holdfast.Errorf(holdfast.KindInvalid, "acp", "part %d of the prompt is neither text nor a resource", i+1).
				WithHint("send text: images and audio are not supported, as the agent's capabilities say")
		}
	}
	text := strings.Join(parts, "\n\n")
	if strings.TrimSpace(text) == "" {
		return "", holdfast.Errorf(holdfast.KindInvalid, "acp", "the prompt is empty").WithHint("send some text")
	}
	if len(text) > holdfast.MaxText {
		return "", holdfast.Errorf(holdfast.KindTooLarge, "acp", "the prompt is over %d bytes", holdfast.MaxText).
			WithHint("put the text into a file of the session with: holdfast files put")
	}
	return text, nil
}

// resource returns the text of an embedded resource, because the agent's box does not have the file.
func resource(r acp.EmbeddedResourceResource) (string, error) {
	var uri, text string
	switch {
	case r.TextResourceContents != nil:
		uri, text = r.TextResourceContents.Uri, r.TextResourceContents.Text
	case r.BlobResourceContents != nil:
		uri = r.BlobResourceContents.Uri
		data, err := base64.StdEncoding.DecodeString(r.BlobResourceContents.Blob)
		if err != nil || !utf8.Valid(data) || strings.ContainsRune(string(data), 0) {
			return "", holdfast.Errorf(holdfast.KindInvalid, "acp", "the resource %s is not text", holdfast.Quote(uri)).
				WithHint("put the file into the session with: holdfast files put")
		}
		text = string(data)
	default:
		return "", holdfast.Errorf(holdfast.KindInvalid, "acp", "a resource of the prompt has neither text nor binary data").WithHint("embed the text of the resource")
	}
	// The resource's text must not contain the closing tag.
	text = strings.ReplaceAll(text, "</resource>", "<\\/resource>")
	return fmt.Sprintf("<resource uri=%q>\n%s\n</resource>", uri, text), nil
}
