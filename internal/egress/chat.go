package egress

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

// chatFields are the allowed fields of a chat completion request, with the check of their values; a
// nil check allows any value.
var chatFields = map[string]field{
	"frequency_penalty": nil, "logit_bias": nil, "logprobs": nil, "max_completion_tokens": nil, "max_tokens": nil,
	"messages": checkChatMessages, "metadata": nil, "model": nil, "n": exactly("1"), "parallel_tool_calls": nil,
	"presence_penalty": nil, "prompt_cache_key": nil, "reasoning_effort": nil, "response_format": nil,
	"safety_identifier": nil, "seed": nil, "service_tier": oneOf("auto", "default", "flex"), "stop": nil,
	"store": exactly("false"), "stream": nil, "stream_options": nil, "temperature": nil, "tool_choice": nil,
	"tools": checkChatTools, "top_logprobs": nil, "top_p": nil, "user": nil, "verbosity": nil,
}

func exactly(want string) field {
	return func(where string, v value, _ grants) error {
		if string(v) == want || v.isNull() {
			return nil
		}
		return refused("the request field %s may only be %s", where, want)
	}
}

// unboundedMost is the number of tokens that are reserved for an answer if the request sets no limit.
const unboundedMost = 16384

// checkChat checks a chat completion request against chatFields, and changes a streaming request so
// that its answer reports the usage.
func checkChat(raw []byte, g grants) (ask, error) {
	a := ask{body: raw, most: unboundedMost}
	m, err := topLevel(raw, chatFields, g)
	if err != nil {
		return a, err
	}
	if err := a.common(m); err != nil {
		return a, err
	}
	if a.most, err = longest(m); err != nil {
		return a, err
	}
	if a.stream {
		a.body, err = metered(raw, m["stream_options"])
	}
	return a, err
}

// longest returns the most tokens that a request allows for its answer. If it sets both limits the
// larger one is used, because the provider chooses which one applies.
func longest(m map[string]value) (int64, error) {
	most := int64(-1)
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		if v := m[name]; v != nil && !v.isNull() {
			n, err := v.tokens(name)
			if err != nil {
				return 0, err
			}
			most = max(most, n)
		}
	}
	if most < 0 {
		return unboundedMost, nil
	}
	return most, nil
}

// metered returns the request with stream_options.include_usage set, so that the stream ends with
// the usage.
func metered(raw []byte, options value) ([]byte, error) {
	const member = `"include_usage":true`
	if options == nil {
		i := strings.IndexByte(string(raw), '{')
		return []byte(string(raw[:i+1]) + `"stream_options":{` + member + `},` + string(raw[i+1:])), nil
	}
	m, err := options.members("stream_options")
	if err != nil {
		return nil, err
	}
	was := m["include_usage"]
	switch {
	case string(was) == "true":
		return raw, nil
	case was != nil:
		return nil, refused("stream_options.include_usage must be true: the broker counts the tokens of a stream by it")
	}
	// options is a part of the slice raw, so the difference of the capacities is its offset in raw.
	i := cap(raw) - cap(options)
	rest := string(raw[i+1:])
	if len(m) > 0 {
		rest = "," + rest
	}
	return []byte(string(raw[:i+1]) + member + rest), nil
}

// checkChatTools allows tools of types function and custom, which the client runs itself. Tools that
// the provider runs need a grant.
func checkChatTools(where string, v value, g grants) error {
	return v.objects(where, func(_ string, m map[string]value) error {
		if t, ok := m["type"].text(); !ok || t != "function" && t != "custom" {
			return g.need(Grant(undated(t)), "the server tool "+holdfast.Quote(t))
		}
		return nil
	})
}

func checkChatMessages(where string, v value, g grants) error {
	return v.objects(where, func(where string, m map[string]value) error {
		content := m["content"]
		if content == nil || content.isString() || content.isNull() {
			return nil
		}
		return content.objects(where+".content", func(where string, m map[string]value) error {
			return checkPart(where, m, g)
		})
	})
}

// checkPart allows a part of a message whose content is in the request itself. A part with a URL or a
// stored file needs a grant.
func checkPart(where string, m map[string]value, g grants) error {
	switch kind, _ := m["type"].text(); kind {
	case "text", "refusal", "input_audio":
		return nil
	case "image_url":
		img, err := m["image_url"].members(where + ".image_url")
		if err != nil {
			return err
		}
		if url, ok := img["url"].text(); ok && strings.HasPrefix(url, "data:") {
			return nil
		}
		return g.need(GrantURLs, where+" with a URL")
	case "file":
		file, err := m["file"].members(where + ".file")
		if err != nil {
			return err
		}
		if len(file["file_id"]) > 0 || len(file["file_data"]) == 0 {
			return g.need(GrantFiles, where+" with a file of the account")
		}
		data, _ := file["file_data"].text()
		if strings.Contains(data, "://") {
			return g.need(GrantURLs, where+" with a URL")
		}
		return nil
	default:
		return refused("%s is of type %s, which is not on the list of allowed types", where, holdfast.Quote(kind))
	}
}
