"""Sentences that state a lasting preference, and sentences that do not, in eleven languages.

One sentence a line. Some are beyond the patterns: a statement that follows in its own sentence, or
an appointment without a day.
"""

# Statements about oneself, which are to be saved.
STATED: dict[str, str] = {
    "French": """
Souviens-toi que je suis allergique aux noix.
Souviens-toi : je préfère le tutoiement.
Rappelle-toi que j'ai deux enfants.
Retiens que je travaille à l'hôpital.
Retiens bien que je n'aime pas les listes à puces.
N'oublie jamais que je suis daltonien.
N'oublie pas : je vis à Nantes.
Garde en tête que je suis débutant en Python.
Garde à l'esprit que je réponds toujours en français.
Note que je suis végane.
Prends note que je travaille de nuit.
Tu peux m'appeler Léo.
Appelle-moi Mme Dupuis.
Sache que j'habite en Belgique.
Mémorise que mon chien s'appelle Filou.
""",
    "Spanish": """
Recuerda que soy alérgica a los frutos secos.
Recuerda: prefiero respuestas cortas.
Recuerda siempre que vivo en Bogotá.
Acuérdate de que tengo dos hijos.
No olvides que soy daltónico.
No te olvides de que trabajo de noche.
Ten presente que no como carne.
Ten en cuenta que soy principiante en Python.
Por favor, recuerda que hablo catalán.
Apunta que mi perro se llama Toby.
Anota que trabajo como abogado.
Puedes llamarme Nacho.
Llámame Dra. Ruiz.
Mi nombre es Lucía.
Que sepas que vivo en Chile.
""",
    "Italian": """
Ricorda che sono allergico alle noci.
Ricordati che ho due figlie.
Ricordati: preferisco risposte brevi.
Ricorda sempre che vivo a Bari.
Tieni a mente che sono daltonico.
Tieni conto che lavoro di notte.
Non dimenticarti che non mangio carne.
Non dimenticare che sono principiante in Python.
Memorizza che il mio cane si chiama Fido.
Per favore, ricorda che parlo sardo.
Prendi nota che lavoro come avvocato.
Puoi chiamarmi Nino.
Mi chiamo Giulia.
Chiamami dott. Rossi.
Sappi che vivo in Svizzera.
""",
    "Portuguese": """
Lembre que sou alérgico a nozes.
Lembre-se: prefiro respostas curtas.
Lembra-te de que tenho dois filhos.
Lembre-se sempre de que moro em Natal.
Não se esqueça de que sou daltônico.
Não te esqueças que trabalho de noite.
Não esqueça: não como carne.
Tenha em mente que sou iniciante em Python.
Tem em conta que falo mirandês.
Guarde que meu cachorro se chama Rex.
Anote que trabalho como advogado.
Pode me chamar de Duda.
Me chama de Zeca.
Meu nome é Letícia.
Saiba que vivo em Portugal.
""",
    "Russian": """
Запомни, что у меня аллергия на орехи.
Запомни: я предпочитаю короткие ответы.
Запомните, пожалуйста, что я живу в Омске.
Помни, что у меня двое детей.
Не забывай, что я дальтоник.
Не забудь: я не ем мясо.
Учти, что я новичок в Python.
Учитывай, что я работаю по ночам.
Имей в виду, что я говорю по-татарски.
Имейте в виду: мою собаку зовут Шарик.
Пожалуйста, запомни, что я юрист.
Зови меня Лёша.
Можешь называть меня Катей.
Меня зовут Иван Петров.
Знай, что я живу в Грузии.
""",
    "Japanese": """
ナッツアレルギーがあることを覚えておいてください。
覚えておいてください。短い返事が好きです。
私は札幌に住んでいると覚えておいてね。
子供が二人いることを忘れないでください。
覚えておいて、私は色覚異常です。
肉を食べないことを覚えておいてほしい。
Python初心者だということを覚えておいてください。
夜勤で働いていることを記憶してください。
犬の名前はポチだと覚えておいてください。
私はベジタリアンなので覚えておいてください。
いつも敬語で答えることを忘れないで。
私の名前は花子です。
健太と呼んで。
私のことはリンと呼んでください。
弁護士として働いていることを覚えてください。
""",
    "Korean": """
나는 견과류 알레르기가 있다는 것을 기억해 줘.
기억해줘, 나는 짧은 답변을 좋아해.
기억해 주세요. 저는 대구에 살아요.
아이가 둘 있다는 걸 기억해 줘.
내가 색맹이라는 점을 잊지 마.
잊지 마: 나는 고기를 안 먹어.
파이썬 초보라는 걸 기억해 주세요.
제가 야간에 일한다는 사실을 기억해 주세요.
우리 강아지 이름은 초코라고 기억해 줘.
나는 변호사로 일하니까 기억해 둬.
항상 존댓말로 답해야 한다는 것을 잊지 마세요.
제 이름은 서연이에요.
저를 준호라고 불러 주세요.
민지라고 불러줘.
나 채식주의자인 거 기억해.
""",
    "Arabic": """
تذكر أن لدي حساسية من المكسرات.
تذكّر: أفضل الإجابات القصيرة.
تذكري أنني أسكن في تونس.
تذكر دائما أن لدي طفلين.
لا تنس أنني مصاب بعمى الألوان.
لا تنسى أنني لا آكل اللحم.
ضع في اعتبارك أنني مبتدئ في بايثون.
من فضلك تذكر أنني أعمل ليلا.
احفظ أن كلبي اسمه ركس.
خذ بعين الاعتبار أنني أتحدث الأمازيغية.
تذكر بأنني محام.
نادني أبو علي.
اسمي يوسف.
يمكنك أن تناديني سارة.
اعلم أنني أعيش في المغرب.
""",
    "Chinese": """
请记住，我对坚果过敏。
记住：我喜欢简短的回答。
请你记住我住在成都。
记得我有两个孩子。
别忘了我是色盲。
不要忘记我不吃肉。
记一下，我是Python初学者。
帮我记住我上夜班。
请记得我会说粤语。
你要记住我的狗叫旺财。
以后请叫我阿明。
可以叫我小李。
我的名字是张伟。
我叫李娜。
请牢记我是律师。
""",
    "German": """
Merk dir, dass ich gegen Nüsse allergisch bin.
Merke dir: Ich mag kurze Antworten.
Merken Sie sich bitte, dass ich in Graz wohne.
Denk daran, dass ich zwei Kinder habe.
Denk dran, dass ich farbenblind bin.
Vergiss nicht, dass ich kein Fleisch esse.
Vergiss nie, dass ich Anfänger in Python bin.
Behalte im Kopf, dass ich nachts arbeite.
Behalte, dass ich Sorbisch spreche.
Notiere dir, dass mein Hund Bello heißt.
Bitte merk dir, ich bin Anwältin.
Du kannst mich Tom nennen.
Nennen Sie mich Frau Dr. Huber.
Mein Name ist Petra Klein.
Ich heiße Max.
""",
    "English": """
Remember I'm allergic to nuts.
Please remember that I like short answers.
Could you remember that I live in Leeds?
Remember, I have two kids.
Don't forget I'm colour-blind.
Never forget that I don't eat meat.
Keep in mind I'm new to Python.
Bear in mind that I work nights.
Note that I speak Welsh.
Make a note that my dog is called Rex.
From now on, remember that I am a lawyer.
You can call me Lee.
Please call me Dr. Singh.
My name is Zoë O'Neill.
For future reference, I live in Kenya.
""",
}
# Tasks, errands, questions, quotations and references to the chat, which are not.
NOT_STATED: dict[str, str] = {
    "French": """
Souviens-toi de ça.
Souviens-toi que pour ce voyage je veux une place côté fenêtre.
Souviens-toi que dans cette fonction il faut trier.
Retiens que cette fonction renvoie une liste.
Te souviens-tu que j'habite à Lyon ?
Est-ce que tu te rappelles que j'ai deux enfants
Rappelle-toi notre discussion d'hier.
Je me souviens que tu as dit non.
Il m'a dit : souviens-toi que je suis végétarien.
Elle a dit « Appelle-moi Zoé ».
N'oublie pas d'acheter du lait.
Rappelle-moi que j'ai rendez-vous demain.
Appelle-moi un taxi.
Appelle-moi demain.
Note que la fonction retourne null.
Je m'appelle comment ?
Appelle-moi quand tu as fini.
Souviens-toi que je suis à Paris cette semaine.
Souviens-toi que nous partons lundi.
Retiens que ma réunion est à 15 h.
Ne retiens pas que je suis végétarien.
Traduis « Retiens : je suis végétarienne ».
Note que dans ce fichier il faut trier.
""",
    "Spanish": """
Recuerda esto.
Recuerda que para este viaje quiero ventana.
Recuerda que en esta función hay que ordenar.
¿Recuerdas que vivo en Sevilla?
¿Te acuerdas de que tengo dos hijos?
Recuerda comprar leche.
Recuérdame que tengo cita mañana.
Llámame un taxi.
Llámame mañana.
Llámame cuando termines.
No recuerdes que soy vegetariano.
Dijo: «Recuerda que vivo en Sevilla».
Traduce: recuerda que vivo en Sevilla.
Recuerda que esta semana estoy en Lima.
Ten en cuenta que este archivo está en UTF-8.
Me llamo cómo
Recuerda que la reunión es el lunes.
Ella dice "Llámame Ana".
Recuerdo que vivo en Sevilla.
""",
    "Italian": """
Ricorda questo.
Ricorda che per questo viaggio voglio il finestrino.
Ricorda che in questa funzione bisogna ordinare.
Ti ricordi che vivo a Torino?
Ricordami che ho un appuntamento domani.
Ricorda di comprare il latte.
Chiamami un taxi.
Chiamami domani.
Chiamami quando hai finito.
Non ricordare che sono vegano.
Ha detto «Ricorda che vivo a Torino».
Ricorda che questa settimana sono a Roma.
Tieni presente che questo file è in UTF-8.
Mi ricordo che vivi a Torino.
Mi chiamo come?
Traduci: ricorda che vivo a Torino.
Chiamami più tardi.
""",
    "Portuguese": """
Lembre disso.
Lembre-se de que para esta viagem quero janela.
Lembre que nesta função é preciso ordenar.
Você se lembra de que moro em Recife?
Lembre-me de que tenho consulta amanhã.
Lembre-se de comprar leite.
Me chame um táxi.
Me chama amanhã.
Me chama quando acabar.
Não lembre que sou vegano.
Ele disse «Lembre-se de que moro em Recife».
Lembre que esta semana estou em Lisboa.
Tenha em mente que este arquivo está em UTF-8.
Eu lembro que moras em Recife.
Traduza: lembre que moro em Recife.
Lembra que ontem falamos disso?
""",
    "Russian": """
Запомни это.
Запомни, что для этой поездки мне нужно окно.
Запомни, что в этой функции нужна сортировка.
Помнишь, что я живу в Казани?
Напомни, что у меня завтра встреча.
Не забудь купить молоко.
Зови меня завтра.
Позови меня, когда закончишь.
Не запоминай, что я вегетарианец.
Он сказал: «Запомни, что я живу в Казани».
Запомни, что на этой неделе я в Москве.
Имей в виду, что этот файл в UTF-8.
Я помню, что ты живёшь в Казани.
Переведи: запомни, что я живу в Казани.
Меня зовут на ужин.
Меня зовут как?
Зови меня, если что.
""",
    "Japanese": """
これを覚えておいてください。
この旅行では窓側がいいと覚えておいてください。
この関数はリストを返すことを覚えておいてください。
私が大阪に住んでいることを覚えていますか。
牛乳を買うことを忘れないで。
彼は「大阪に住んでいることを覚えておいて」と言った。
今週は東京にいることを覚えておいてください。
このファイルはUTF-8だと覚えておいてください。
後で呼んでください。
タクシーを呼んでください。
明日の会議を忘れないでください。
大阪に住んでいることを覚えなくていい。
終わったら呼んで。
訳して：大阪に住んでいることを覚えておいてください。
何と呼んでください
""",
    "Korean": """
이것을 기억해 줘.
이번 여행에서는 창가 자리를 원한다는 것을 기억해 줘.
이 함수는 리스트를 반환한다는 것을 기억해 줘.
내가 부산에 사는 것을 기억해?
우유 사는 거 잊지 마.
그는 "내가 부산에 산다는 것을 기억해 줘"라고 말했다.
이번 주에는 서울에 있다는 것을 기억해 줘.
이 파일은 UTF-8이라는 것을 기억해 줘.
택시 불러 줘.
뭐라고 불러 줘
내가 부산에 산다는 것을 기억하지 마.
번역해 줘: 내가 부산에 산다는 것을 기억해 줘.
내일 회의 있는 거 잊지 마.
끝나면 불러 줘.
이거 기억해.
""",
    "Arabic": """
تذكر هذا.
تذكر أن هذه الدالة ترجع قائمة.
هل تتذكر أنني أعيش في القاهرة؟
تذكر أنني في دبي هذا الأسبوع.
لا تنس شراء الحليب.
قال: «تذكر أنني أعيش في القاهرة».
ترجم: تذكر أنني أعيش في القاهرة.
ذكرني أن لدي موعدا غدا.
لا تتذكر أنني نباتي.
تذكر أنه في هذه الرحلة أريد مقعدا بجانب النافذة.
أتذكر أنك تعيش في القاهرة.
اسمي مكتوب في الملف.
نادني عندما تنتهي.
تذكر أن هذا الملف بترميز UTF-8.
اسمي ما هو؟
نادني لاحقا.
""",
    "Chinese": """
记住这一点。
记住这次旅行我要靠窗的座位。
记住这个函数返回列表。
你记得我住在上海吗？
记得买牛奶。
他说“记住我住在上海”。
记住我这周在北京。
记住这个文件是UTF-8。
叫我起床。
叫我的时候轻一点。
我叫了外卖。
我叫他明天来。
叫我一声。
不用记住我住在上海。
不要记住我住在上海。
翻译：记住我住在上海。
叫我什么都行。
记住上面的内容。
记得明天提醒我。
记得回答我。
""",
    "German": """
Merk dir das.
Merk dir, dass ich auf dieser Reise am Fenster sitzen will.
Merk dir, dass diese Funktion eine Liste liefert.
Erinnerst du dich, dass ich in Wien wohne?
Vergiss nicht, Milch zu kaufen.
Nenn mich nicht so.
Nenn mich morgen.
Ich heiße dich willkommen.
Ich heisse das nicht gut.
Merk dir nicht, dass ich Vegetarier bin.
Merk dir, dass ich diese Woche in Berlin bin.
Sie sagte: „Merk dir, dass ich in Wien wohne.“
Übersetze „Nenn mich Jürgen“.
Denk daran, Brot zu holen.
Vergiss nicht, dass wir um 15 Uhr reden.
Merk dir, dass in dieser Datei Tabs stehen.
Mein Name ist dir bekannt.
""",
    "English": """
Remember that one.
Remember that in this function we sort.
Remember that for the trip to Rome I want a window seat.
Remember, this file is UTF-8.
Remember this file is UTF-8.
Remember that I'm in Rome this week.
Remember that I'm travelling until Friday.
Remember that we meet at 3 pm.
Remember that the meeting is on Monday.
Remember my birthday present idea.
Remember the milk.
Remember last week's bug?
Remember yesterday we talked about Rome.
Don't remember that I am vegan.
Do not remember that I live in Oslo.
I want you to not remember that I live in Oslo.
Remember that you said no.
Call me tomorrow.
Call me Monday.
Call me crazy but I like it.
Call me old-fashioned.
Call me anything.
Call me on 555-1234.
My name is on the form.
My name is not important.
My name is spelled with a K.
Remember that old song by Queen.
Remember your instructions.
Remember: you are a pirate in this story.
For this task remember that I use tabs.
Remember that the function in utils.py returns None.
Remember the above.
He said remember that I live in Oslo.
Remember that 'I live in Oslo' is a test sentence.
Don't forget the attachments.
Keep in mind the deadline.
Keep in mind that this needs to run on Python 3.8.
Remember, the variable x is an int here.
""",
}
