"""Names and statements in everyday Chinese: polite endings, other verbs, and confirmations."""

import pytest

from chats.memory.preferences.preference_patterns import extract_statements, is_quotable_span


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("叫我小明吧", "小明"),
        ("叫我小明就好。", "小明"),
        ("叫我小明就行了", "小明"),
        ("你可以叫我小明好吗", "小明"),
        ("以后叫我阿强啦", "阿强"),
        ("叫我 Bob 就好", "Bob"),
        ("叫我Bob吧！", "Bob"),
        ("我叫王小明呀~", "王小明"),
        ("我的名字叫王伟啊", "王伟"),
        ("我叫小明 今年20岁", "小明"),
        ("我叫玛丽·居里。", "玛丽·居里"),
        ("我叫上官婉儿，是老师", "上官婉儿"),
        ("我叫车晓", "车晓"),
        ("我叫何伟", "何伟"),
        ("我叫来福", "来福"),
        ("叫我李老师", "李老师"),
        ("叫我老师吧", "老师"),
    ],
)
def test_a_name_has_no_polite_ending(text: str, name: str) -> None:
    (found,) = extract_statements(text)

    assert (found.slot, found.text) == ("name", name)
    assert is_quotable_span(found, text=text)


@pytest.mark.parametrize(
    "text",
    [
        "我叫外卖",
        "叫我加班",
        "叫我起来",
        "我叫救命",
        "我叫外賣吃",
        "我叫车去机场",
        "我叫出租车",
        "我叫滴滴",
        "我叫人来修",
        "我叫朋友帮忙",
        "我叫苦连天",
        "叫我妈来",
        "叫我先写代码",
        "叫我写一篇长长的文章",
        "叫我什么好呢",
    ],
)
def test_what_a_person_orders_or_tells_is_no_name(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "你记住了吗",
        "记住了，谢谢",
        "記住了沒有",
        "记住我说的话",
        "记住我们说好的",
        "记住我的要求",
        "帮我记住我的名字",
    ],
)
def test_confirmations_and_references_are_no_statements(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("帮我记住一下我的狗叫旺财", "我的狗叫旺财"),
        ("记住我说话很直接", "我说话很直接"),
        ("记住我说的是粤语", "我说的是粤语"),
        ("记住，我的名字很少见", "我的名字很少见"),
    ],
)
def test_a_statement_begins_behind_the_verb(text: str, told: str) -> None:
    assert [found.text for found in extract_statements(text)] == [told]


@pytest.mark.parametrize(
    "text",
    [
        "记住验证码是483920",
        "记住我的储蓄卡卡号：6222 0212 3456",
        "請記住我的駕照號碼是A123456789",
        "记住我的社保号是 110101199001",
        "记住门禁码是4711#",
        "记住我的护照号码是E12345678",
        "记住我的password是hunter2",
        "记住我用的API key是k1",
        "记住我的钥匙是sk-abcdefgh12345678好吗",
        "记住我的代码是a1B2c3D4e5F6g7H8i9J0k1L2m3",
        "記住卡片4111111111111111是我的",
        "请记住：我的身份证号110101199001011234",
        "覚えておいて：パスポートの番号はTK1234567です",
        "기억해 줘: 여권번호는M12345678",
    ],
)
def test_codes_and_numbers_of_documents_are_never_saved(text: str) -> None:
    assert extract_statements(text) == []


@pytest.mark.parametrize(
    "text", ["记住我有驾照", "记住我的护照2030年到期", "记住我会考驾驶证", "记住我在社保局工作"]
)
def test_a_document_without_its_number_is_no_secret(text: str) -> None:
    assert len(extract_statements(text)) == 1
