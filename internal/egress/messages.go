package egress

import (
	"fmt"

	"github.com/holdfast-run/holdfast"
)

// field checks the value of one field of a model request. A nil field allows any value.
type field func(where string, v value, g grants) error

// messageFields are the allowed fields of a request of the Messages API, with their checks.
var messageFields = map[string]field{
	"cache_control": nil, "context_management": nil, "max_tokens": nil, "messages": checkConversation, "metadata": nil,
	"model": nil, "output_config": nil, "output_format": nil, "service_tier": oneOf("auto", "standard_only"),
	"stop_sequences": nil, "stream": nil, "system": checkSystem, "temperature": nil, "thinking": nil,
	"tool_choice": nil, "tools": checkTools, "top_k": nil, "top_p": nil,
	"mcp_servers": needs(GrantMCP, "mcp_servers"), "container": needs(GrantContainer, "container"),
}

// maxBlocks is how many levels deep content blocks may be nested: a text in a document in a tool's result has three.
const maxBlocks = 3

// checkMessages checks a request of the Messages API against messageFields.
func checkMessages(raw []byte, g grants) (ask, error) {
	a := ask{body: raw, most: unboundedMost}
	m, err := topLevel(raw, messageFields, g)
	if err != nil {
		return a, err
	}
	if err := a.common(m); err != nil {
		return a, err
	}
	if v := m["max_tokens"]; v != nil {
		a.most, err = v.tokens("max_tokens")
	}
	return a, err
}

// topLevel checks each top-level field of a request against list, the fields that the API allows, and returns
// the fields. A field that is not in list needs a grant.
func topLevel(raw []byte, list map[string]field, g grants) (map[string]value, error) {
	doc, err := parseJSON(raw)
	if err != nil {
		return nil, err
	}
	m, err := doc.members("the request")
	if err != nil {
		return nil, err
	}
	for name, v := range m {
		check, known := list[name]
		if !known {
			if err := g.need(Grant("field:"+name), "the field "+holdfast.Quote(name)); err != nil {
				return nil, err
			}
			continue
		}
		if check != nil {
			if err := check(name, v, g); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// common reads the fields that both APIs have: model, stream and messages.
func (a *ask) common(m map[string]value) error {
	var ok bool
	if a.model, ok = m["model"].text(); !ok || a.model == "" || len(a.model) > 200 {
		return refused("the request names no model")
	}
	if s, ok := m["stream"]; ok {
		if a.stream = string(s) == "true"; !a.stream && string(s) != "false" {
			return refused("the request field stream is neither true nor false")
		}
	}
	list, err := m["messages"].elements("messages")
	a.messages = len(list)
	return err
}

func oneOf(allowed ...string) field {
	return func(where string, v value, _ grants) error {
		s, ok := v.text()
		for _, a := range allowed {
			if ok && s == a {
				return nil
			}
		}
		return refused("the request field %s may only be one of %q", where, allowed)
	}
}

func needs(one Grant, what string) field {
	return func(_ string, v value, g grants) error {
		if v.isNull() {
			return nil
		}
		return g.need(one, what)
	}
}

func checkSystem(where string, v value, _ grants) error {
	if v.isString() || v.isNull() {
		return nil
	}
	return v.objects(where, func(where string, m map[string]value) error {
		if t, _ := m["type"].text(); t != "text" {
			return refused("%s is not a block of type text", where)
		}
		return nil
	})
}

func at(list string, i int) string { return fmt.Sprintf("%s.%d", list, i) }

// toolFields are the allowed fields of a tool that the client runs.
var toolFields = map[string]bool{
	"name": true, "description": true, "input_schema": true, "type": true, "cache_control": true, "strict": true,
	"defer_loading": true, "eager_input_streaming": true, "input_examples": true, "allowed_callers": true,
}

// checkTools allows tools that the client runs itself. A tool that the provider runs or defines needs a
// grant of its name, and a field that is not in toolFields needs the grant field:NAME.
func checkTools(where string, v value, g grants) error {
	return v.objects(where, func(where string, m map[string]value) error {
		if kind, named := m["type"]; named && !kind.isNull() {
			t, ok := kind.text()
			if !ok {
				return refused("%s.type is not a string", where)
			}
			if t != "custom" {
				return g.need(Grant(undated(t)), "the server tool "+holdfast.Quote(t))
			}
		}
		for name, member := range m {
			if !toolFields[name] {
				if err := g.need(Grant("field:"+name), where+"."+name); err != nil {
					return err
				}
			}
			if name == "allowed_callers" && string(member) != `["direct"]` {
				if err := g.need("code_execution", where+".allowed_callers"); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func checkConversation(where string, v value, g grants) error {
	return v.objects(where, func(where string, m map[string]value) error {
		return checkContent(where+".content", m["content"], g, 1)
	})
}

// plainBlocks are the types of content blocks that need no grant; images and documents need one if
// their source is a URL or a stored file.
var plainBlocks = map[string]bool{
	"text": true, "thinking": true, "redacted_thinking": true, "tool_use": true, "tool_reference": true,
	"search_result": true, "compaction": true, "tool_result": true, "image": true, "document": true,
}

// grantedBlocks are the types of content blocks that need a grant.
var grantedBlocks = map[string]Grant{
	"container_upload": GrantFiles, "mcp_tool_use": GrantMCP, "mcp_tool_result": GrantMCP,
	"web_search_tool_result": "web_search", "web_fetch_tool_result": "web_fetch",
	"code_execution_tool_result": "code_execution", "bash_code_execution_tool_result": "code_execution",
	"text_editor_code_execution_tool_result": "code_execution",
}

// checkContent checks the content of a message or of a block: a string, or an array of blocks. depth
// is how deeply the content is nested.
func checkContent(where string, v value, g grants, depth int) error {
	if v == nil || v.isString() || v.isNull() {
		return nil
	}
	if depth > maxBlocks {
		return refused("%s is nested too deeply", where)
	}
	return v.objects(where, func(where string, m map[string]value) error {
		return checkBlock(where, m, g, depth)
	})
}

func checkBlock(where string, m map[string]value, g grants, depth int) error {
	kind, _ := m["type"].text()
	if !plainBlocks[kind] {
		one, ok := grantedBlocks[kind]
		if kind == "server_tool_use" {
			name, _ := m["name"].text()
			one, ok = Grant(name), name != ""
		}
		if !ok {
			return refused("%s is of type %s, which is not on the list of allowed types", where, holdfast.Quote(kind))
		}
		return g.need(one, where+" of type "+holdfast.Quote(kind))
	}
	switch kind {
	case "tool_result":
		return checkContent(where+".content", m["content"], g, depth+1)
	case "image", "document":
		return checkSource(where+".source", m["source"], g, depth)
	}
	return nil
}

// checkSource allows a source whose content is in the request itself. A source with a URL or a stored
// file needs a grant.
func checkSource(where string, v value, g grants, depth int) error {
	m, err := v.members(where)
	if err != nil {
		return err
	}
	switch kind, _ := m["type"].text(); kind {
	case "base64", "text":
		return nil
	case "content":
		return checkContent(where+".content", m["content"], g, depth+1)
	case "url":
		return g.need(GrantURLs, where+" of type \"url\"")
	case "file":
		return g.need(GrantFiles, where+" of type \"file\"")
	default:
		return refused("%s is of type %s, which is not on the list of allowed types", where, holdfast.Quote(kind))
	}
}
